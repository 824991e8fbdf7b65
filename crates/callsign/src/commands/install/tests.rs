use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// A home with Codex in it, and what is needed to run both commands there.
struct Home {
    root: tempfile::TempDir,
}

const CONFIG: &str = "# mine\n[mcp_servers.a]\ncommand = \"npx\" # c\n";

impl Home {
    fn new(config: &str) -> Self {
        let home = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(home.path().join(".codex")).unwrap();
        fs::write(home.config(), config).unwrap();
        home
    }

    fn path(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    fn config(&self) -> PathBuf {
        self.path().join(".codex/config.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.config()).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    fn records(&self) -> usize {
        fs::read_dir(self.state().join("install")).map_or(0, Iterator::count)
    }

    fn common(dry_run: bool) -> Common {
        Common { host: Host::Codex, scope: Scope::User, dry_run, yes: true, json: true }
    }

    fn job<'a>(&self, common: &'a Common) -> Job<'a> {
        Job {
            arguments: common,
            environment: Environment::of_process(),
            current_dir: self.path(),
            state_dir: self.state(),
            records: Records::new(&self.state(), Host::Codex, Scope::User),
        }
    }

    fn content() -> hosts::Content {
        let variable = |_: &str| Some("/h".to_owned());
        let around = Surroundings { variable: &variable, project: Path::new("/p") };
        hosts::targets(Host::Codex, Scope::User, around).unwrap()[0].content
    }

    fn install(&self, dry_run: bool) -> anyhow::Result<()> {
        let common = Self::common(dry_run);
        let job = self.job(&common);
        let file = job.read(&self.config())?;
        let record = job.records.load(&file)?;
        let settings = Settings { command: "/opt/callsign".to_owned(), ..known() };
        let done = hosts::install(Self::content(), &settings, file.bytes.as_deref(), record.as_ref())?;
        let change = done.bytes.map(|bytes| Change { outcome: Outcome::Write(bytes), record: done.record });
        job.carry_out(vec![step(file, change)], "wrapped")
    }

    fn uninstall(&self) -> anyhow::Result<()> {
        let common = Self::common(false);
        let job = self.job(&common);
        let file = job.read(&self.config())?;
        let record = job.records.load(&file)?;
        let undone = hosts::uninstall(Self::content(), file.bytes.as_deref(), record.as_ref())?;
        job.carry_out(vec![step(file, Some(Change { outcome: undone.outcome, record: None }))], "restored")
    }
}

fn step(file: HostFile, change: Option<Change>) -> Step {
    let row = Row {
        path: file.target.clone(),
        changed: change.is_some(),
        names: vec![],
        already: vec![],
        left: vec![],
    };
    Step { file, change, row }
}

#[test]
fn the_file_is_edited_and_given_back_with_its_mode() {
    let home = Home::new(CONFIG);
    fs::set_permissions(home.config(), fs::Permissions::from_mode(0o640)).unwrap();
    home.install(false).unwrap();
    assert!(home.text().contains("/opt/callsign"), "{}", home.text());
    assert_eq!(fs::metadata(home.config()).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(home.records(), 1);
    let installed = home.text();
    home.install(false).unwrap();
    assert_eq!(home.text(), installed);
    home.uninstall().unwrap();
    assert_eq!(home.text(), CONFIG);
    assert_eq!(home.records(), 0);
}

#[test]
fn later_edits_survive_and_a_lost_record_does_not_matter() {
    let home = Home::new(CONFIG);
    home.install(false).unwrap();
    fs::write(home.config(), home.text() + "# later\n").unwrap();
    home.uninstall().unwrap();
    assert_eq!(home.text(), format!("{CONFIG}# later\n"));
    home.install(false).unwrap();
    fs::remove_dir_all(home.state()).unwrap();
    home.uninstall().unwrap();
    assert!(!home.text().contains("callsign"), "{}", home.text());
    assert!(home.text().contains("command = \"npx\" # c"), "{}", home.text());
}

#[test]
fn a_record_that_does_not_belong_together_counts_as_none() {
    let home = Home::new(CONFIG);
    home.install(false).unwrap();
    let directory = fs::read_dir(home.state().join("install")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    fs::write(directory.join("original"), "command = \"evil\"").unwrap();
    home.uninstall().unwrap();
    assert!(
        home.text().contains("command = \"npx\" # c") && !home.text().contains("evil"),
        "{}",
        home.text()
    );
}

#[test]
fn a_dry_run_writes_nothing() {
    let home = Home::new(CONFIG);
    home.install(true).unwrap();
    assert_eq!(home.text(), CONFIG);
    assert!(!home.state().exists());
}

#[test]
fn a_link_stays_a_link_and_does_not_lead_out_of_a_project() {
    let home = Home::new(CONFIG);
    let elsewhere = home.path().join("dotfiles.toml");
    fs::rename(home.config(), &elsewhere).unwrap();
    symlink(&elsewhere, home.config()).unwrap();
    home.install(false).unwrap();
    assert!(home.config().is_symlink());
    assert!(fs::read_to_string(&elsewhere).unwrap().contains("/opt/callsign"));
    home.uninstall().unwrap();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), CONFIG);

    let project = home.path().join("project");
    fs::create_dir(&project).unwrap();
    symlink(&elsewhere, project.join("config.toml")).unwrap();
    let error = files::read(&project.join("config.toml"), Some(&project)).unwrap_err();
    assert!(error.to_string().contains("leads out"), "{error:#}");
    symlink("nowhere", project.join("dangling")).unwrap();
    assert!(files::read(&project.join("dangling"), None).is_err());
    assert!(files::read(&project, None).is_err());
    assert!(files::read(&project.join("a/b/c.toml"), Some(&project)).unwrap().bytes.is_none());
}

#[test]
fn a_file_that_others_changed_meanwhile_is_not_overwritten() {
    let home = Home::new(CONFIG);
    let file = files::read(&home.config(), None).unwrap();
    fs::write(home.config(), "model = 1\n").unwrap();
    let error = file.write(b"ours").unwrap_err();
    assert!(format!("{error:#}").contains("changed while"), "{error:#}");
    assert_eq!(home.text(), "model = 1\n");
}
