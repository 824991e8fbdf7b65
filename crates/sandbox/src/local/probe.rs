//! What boxes can be held by on this machine, found out by trying.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use model::ports::sandbox::{Ability, Gravity, Hold, Holds, Level, Missing, Network, User};
use nix::sys::utsname::uname;
use nix::unistd::geteuid;
use tokio::process::Command;

use super::{Groups, LocalOptions};
use crate::bwrap::walls;
use crate::cgroup::Plan as GroupPlan;
use crate::record::{Bwrap, KeeperCommand, Plan};

/// Options that every box needs, and the version of bubblewrap that has them all.
const NEEDED: [&str; 6] = ["--args", "--info-fd", "--size", "--perms", "--clearenv", "--seccomp"];
const INSTALL: &str = "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora) or pacman -S bubblewrap (Arch)";

/// What can be done here, and with what. The plan's groups are where groups of boxes go.
pub(super) struct Probed {
    pub(super) ability: Ability,
    pub(super) plan: Plan,
}

pub(super) async fn probe(options: &LocalOptions) -> io::Result<Probed> {
    let mut missing = Vec::new();
    let root = geteuid().is_root();
    let bwrap = match options.level {
        Level::Nothing => None,
        Level::Bubblewrap | Level::Container => match bubblewrap(options, root).await? {
            Ok(bwrap) => Some(bwrap),
            Err(lack) => {
                missing.push(lack);
                None
            }
        },
    };
    let groups = match options.groups {
        Groups::Found => GroupPlan::find(),
        Groups::Never => None,
    };
    let boxed = options.level != Level::Nothing;
    let in_groups = |directory: fn(&GroupPlan) -> &Option<PathBuf>| {
        groups.as_ref().is_some_and(|groups| directory(groups).is_some())
    };
    // A group tells how often its limit was hit; a resource limit holds as well, and tells nothing.
    let nproc = boxed
        && !in_groups(|groups| &groups.pids)
        && counts_by_namespace(&uname()?.release().to_string_lossy());
    let or = |enforced: bool, otherwise| if enforced { Hold::Enforced } else { otherwise };
    let holds = Holds {
        memory: or(in_groups(|groups| &groups.memory), Hold::Watched),
        pids: or(nproc || in_groups(|groups| &groups.pids), Hold::Watched),
        cpus: or(in_groups(|groups| &groups.cpu), Hold::Absent),
        disk: Hold::Watched,
        syscalls: or(boxed, Hold::Absent),
    };
    if holds.memory != Hold::Enforced || holds.cpus != Hold::Enforced {
        missing.push(Missing {
            what: "no control group is delegated, so memory is watched and processor time has no limit"
                .to_owned(),
            fix: "run the daemon as a systemd service with Delegate=yes".to_owned(),
            gravity: Gravity::Weakens,
        });
    }
    let level = options.level;
    let plan = Plan { level, holds, bwrap, groups, nproc, root };
    Ok(Probed { ability: Ability { level, holds, missing }, plan })
}

/// Since 5.14 the kernel counts a user's processes in each user namespace by themselves.
fn counts_by_namespace(release: &str) -> bool {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map_while(|number| number.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= (5, 14))
}

async fn bubblewrap(options: &LocalOptions, root: bool) -> io::Result<Result<Bwrap, Missing>> {
    let refuses = |what: &str, fix: &str| Missing {
        what: what.to_owned(),
        fix: fix.to_owned(),
        gravity: Gravity::Refuses,
    };
    // A relative one would lead into whatever directory we were started in.
    let absolute = options.path.iter().filter(|directory| directory.is_absolute());
    let found = absolute.map(|directory| directory.join("bwrap")).find(|path| path.is_file());
    let Some(program) = found else { return Ok(Err(refuses("bubblewrap is not installed", INSTALL))) };
    let help = Command::new(&program).arg("--help").env_clear().stdin(Stdio::null()).output().await?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    if !NEEDED.iter().all(|option| help.contains(option)) {
        return Ok(Err(refuses("bubblewrap is older than 0.6", INSTALL)));
    }
    let bwrap = Bwrap { program, disables_userns: help.contains("--disable-userns") };
    let tried = attempt(&options.keeper, &bwrap, root).await?;
    Ok(match tried {
        None => Ok(bwrap),
        Some(said) => Err(explained(&said, &Switches::of_this_machine(), root)),
    })
}

/// Makes an empty box, as a box would be made. What bubblewrap said if it could not.
async fn attempt(keeper: &KeeperCommand, bwrap: &Bwrap, root: bool) -> io::Result<Option<String>> {
    let user = User::NOBODY;
    let (uid, gid) =
        if root { (user.uid.to_string(), user.gid.to_string()) } else { ("-".into(), "-".into()) };
    let mut command = Command::new(&keeper.program);
    command.args(&keeper.args).arg("try").arg(&bwrap.program).args([uid, gid]);
    command.args(walls(bwrap, Network::None)).args([
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]);
    let output = command.args(["--", "/bin/true"]).env_clear().stdin(Stdio::null()).output().await?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// What systems have to keep users from making namespaces. None where there is no such switch.
#[derive(Debug, Default)]
struct Switches {
    apparmor: Option<String>,
    clone: Option<String>,
    most: Option<String>,
}

impl Switches {
    fn of_this_machine() -> Self {
        let read =
            |name: &str| Some(fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?.trim().to_owned());
        Self {
            apparmor: read("kernel/apparmor_restrict_unprivileged_userns"),
            clone: read("kernel/unprivileged_userns_clone"),
            most: read("user/max_user_namespaces"),
        }
    }
}

fn explained(said: &str, switches: &Switches, root: bool) -> Missing {
    let (what, fix) = if switches.most.as_deref() == Some("0") {
        ("this system allows no user namespaces", "sysctl -w user.max_user_namespaces=16384")
    } else if switches.clone.as_deref() == Some("0") {
        ("this system allows user namespaces to root only", "sysctl -w kernel.unprivileged_userns_clone=1")
    } else if switches.apparmor.as_deref() == Some("1") {
        (
            "AppArmor keeps bubblewrap from making user namespaces, as Ubuntu does since 24.04",
            "give bubblewrap a profile: printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile bwrap /usr/bin/bwrap \
             flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee /etc/apparmor.d/bwrap && sudo apparmor_parser -r /etc/apparmor.d/bwrap",
        )
    } else if root {
        (
            "bubblewrap cannot make a box, though this is root: is this a container?",
            "let the container make namespaces (--security-opt seccomp=unconfined and CAP_SYS_ADMIN), or use the docker runtime",
        )
    } else {
        ("bubblewrap cannot make a box", "see what it says, and whether user namespaces are allowed here")
    };
    Missing { what: format!("{what} ({said})"), fix: fix.to_owned(), gravity: Gravity::Refuses }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(switches: &Switches, root: bool, what: &str, fix: &str) {
        let missing = explained("bwrap: setting up uid map: Permission denied", switches, root);
        assert!(missing.what.contains(what) && missing.what.contains("uid map"), "{missing}");
        assert!(missing.fix.contains(fix), "{missing}");
    }

    #[test]
    fn each_way_to_forbid_namespaces_is_told_with_its_remedy() {
        let some = |text: &str| Some(text.to_owned());
        check(
            &Switches { most: some("0"), ..Switches::default() },
            false,
            "no user namespaces",
            "user.max_user_namespaces",
        );
        check(
            &Switches { clone: some("0"), ..Switches::default() },
            false,
            "root only",
            "unprivileged_userns_clone=1",
        );
        check(
            &Switches { apparmor: some("1"), most: some("99"), clone: some("1") },
            false,
            "AppArmor",
            "apparmor_parser",
        );
        check(&Switches::default(), true, "container", "CAP_SYS_ADMIN");
        check(&Switches::default(), false, "cannot make a box", "allowed");
    }

    #[test]
    fn kernels_that_count_by_namespace_are_known_by_their_version() {
        for (release, expected) in [
            ("5.14.0", true),
            ("6.18.44-fc", true),
            ("5.13.19", false),
            ("5.4", false),
            ("4.19.0-26", false),
            ("", false),
        ] {
            assert_eq!(counts_by_namespace(release), expected, "{release}");
        }
    }
}
