//! Which crate may depend on which, and which library may be used where. A new arrow needs an ADR.

use toml::Table;

use super::Finding;

/// Our own crates: name, and what it may depend on.
const ARROWS: [(&str, &[&str]); 25] = [
    ("address", &[]),
    ("beneath", &[]),
    ("model", &[]),
    ("mcp", &[]),
    ("hooks", &[]),
    ("supervise", &[]),
    ("telemetry", &[]),
    ("identity", &["model"]),
    ("store", &["model"]),
    ("sandbox", &["beneath", "model"]),
    ("containers", &["beneath", "model"]),
    ("agent", &["model"]),
    ("carry", &["beneath"]),
    ("ledger", &["model"]),
    ("dashboard", &["model"]),
    ("hosts", &["model"]),
    ("sessions", &["beneath", "carry", "model"]),
    ("broker", &["address", "model"]),
    ("gateway", &["address", "identity", "hooks", "ledger", "mcp", "model", "supervise", "telemetry"]),
    ("api", &["beneath", "carry", "gateway", "identity", "ledger", "model", "sessions"]),
    (
        "callsign",
        &[
            "agent",
            "api",
            "broker",
            "containers",
            "gateway",
            "hooks",
            "hosts",
            "identity",
            "ledger",
            "mcp",
            "model",
            "sandbox",
            "sessions",
            "store",
            "supervise",
            "telemetry",
            "tether",
        ],
    ),
    // The bridge is a static binary for the box: it must not drag anything in.
    ("bridge", &[]),
    ("tether", &["bridge"]),
    ("testkit", &["mcp", "model", "supervise"]),
    ("xtask", &[]),
];

/// Arrows of tests alone, besides those to `testkit`: where a fake would only repeat what the real thing does.
const TEST_ARROWS: [(&str, &str); 2] = [("api", "store"), ("sessions", "store")];

/// Libraries that only the named crates may use outside their tests.
const ONLY_IN: [(&str, &[&str]); 11] = [
    ("anyhow", &["callsign", "testkit", "xtask"]),
    ("clap", &["callsign", "testkit", "xtask"]),
    ("clap_complete", &["callsign"]),
    ("maud", &["dashboard"]),
    ("nix", &["supervise", "callsign", "hooks", "sandbox", "testkit", "xtask"]),
    ("rmcp", &["api", "testkit"]),
    ("sqlx", &["store", "ledger"]),
    ("rusqlite", &["store", "ledger"]),
    ("bollard", &["containers"]),
    ("rquickjs", &["hooks"]),
    ("axum", &["api", "testkit", "callsign"]),
];

/// Libraries that do I/O and therefore have no place in `model`.
const NOT_IN_MODEL: [&str; 5] = ["tokio", "hyper", "hyper-util", "reqwest", "tracing"];

pub(super) fn check(file: &str, manifest: &str) -> Vec<Finding> {
    let finding = |message: String| Finding { file: file.to_owned(), line: 0, message };
    let table: Table = match manifest.parse() {
        Ok(table) => table,
        Err(error) => return vec![finding(format!("is no TOML: {error}"))],
    };
    let Some(name) =
        table.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str())
    else {
        return Vec::new(); // The workspace's own manifest.
    };
    let folder = file.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
    let mut findings = Vec::new();
    // What others may use on its own carries our name before its own.
    let name = name.strip_prefix("callsign-").unwrap_or(name);
    if folder != name {
        findings.push(finding(format!("the folder is named {folder}, the crate {name}")));
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(crate_name, _)| *crate_name == name) else {
        findings.push(finding(format!("{name} is not in the table of arrows (xtask/src/tidy/arrows.rs)")));
        return findings;
    };
    for (dependency, section) in dependencies(&table) {
        let tests = section == "dev-dependencies";
        if ARROWS.iter().any(|(crate_name, _)| *crate_name == dependency) {
            let for_tests = dependency == "testkit" || TEST_ARROWS.contains(&(name, dependency.as_str()));
            let fine = allowed.contains(&dependency.as_str()) || (tests && for_tests);
            if !fine {
                findings.push(finding(format!("the arrow {name} → {dependency} ({section}) is not allowed")));
            }
        } else if !tests && let Some(message) = misplaced(name, &dependency) {
            findings.push(finding(message));
        }
    }
    findings
}

fn misplaced(name: &str, library: &str) -> Option<String> {
    if name == "model" && NOT_IN_MODEL.contains(&library) {
        return Some(format!("model does no I/O, so it has no use for {library}"));
    }
    let (_, rooms) = ONLY_IN.iter().find(|(other, _)| *other == library)?;
    (!rooms.contains(&name)).then(|| format!("{library} may be used in {} only", rooms.join(", ")))
}

/// Every dependency by its package name, with the section it stands in, target-specific ones included.
fn dependencies(table: &Table) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let targets = table.get("target").and_then(|target| target.as_table());
    let tables = std::iter::once(table)
        .chain(targets.into_iter().flat_map(|target| target.values().filter_map(|value| value.as_table())));
    for table in tables {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(entries) = table.get(section).and_then(|entries| entries.as_table()) else { continue };
            for (key, value) in entries {
                let package = value.get("package").and_then(|package| package.as_str()).unwrap_or(key);
                let package = package.strip_prefix("callsign-").unwrap_or(package);
                found.push((package.to_owned(), section));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn check_manifest(name: &str, rest: &str, expected: &[&str]) {
        let manifest = format!("[package]\nname = \"{name}\"\n{rest}");
        let found: Vec<_> = check(&format!("crates/{name}/Cargo.toml"), &manifest)
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (message, part) in found.iter().zip(expected) {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_found() {
        check_manifest("gateway", "[dependencies]\nmcp = {}\nmodel.workspace = true\n", &[]);
        check_manifest("mcp", "[dependencies]\nmodel = {}\n", &["mcp → model"]);
        check_manifest("gateway", "[build-dependencies]\nsessions = {}\n", &["gateway → sessions"]);
        check_manifest("model", "[target.'cfg(unix)'.dependencies]\nmcp = {}\n", &["model → mcp"]);
    }

    #[test]
    fn a_renamed_dependency_does_not_hide() {
        check_manifest("mcp", "[dependencies]\nm = { package = \"model\" }\n", &["mcp → model"]);
    }

    #[test]
    fn testkit_is_for_tests_only() {
        check_manifest("gateway", "[dev-dependencies]\ntestkit = {}\n", &[]);
        check_manifest("gateway", "[dependencies]\ntestkit = {}\n", &["gateway → testkit"]);
    }

    #[test]
    fn an_arrow_of_tests_is_no_arrow_elsewhere() {
        check_manifest("api", "[dev-dependencies]\nstore = {}\n", &[]);
        check_manifest("api", "[dependencies]\nstore = {}\n", &["api → store"]);
        check_manifest("gateway", "[dev-dependencies]\nstore = {}\n", &["gateway → store"]);
    }

    #[test]
    fn a_library_outside_its_room_is_found() {
        check_manifest("supervise", "[dependencies]\nnix = {}\n", &[]);
        check_manifest("gateway", "[dependencies]\nnix = {}\nrmcp = {}\n", &["nix", "rmcp"]);
        check_manifest("gateway", "[dev-dependencies]\nnix = {}\n", &[]);
        check_manifest("model", "[dependencies]\ntokio = {}\n", &["no I/O"]);
    }

    #[test]
    fn a_crate_that_nobody_placed_is_found() {
        check_manifest("novel", "", &["not in the table"]);
    }

    #[test]
    fn a_folder_with_another_name_is_found() {
        let found = check("crates/wire/Cargo.toml", "[package]\nname = \"mcp\"\n");
        assert!(found[0].message.contains("named wire"), "{found:?}");
    }
}
