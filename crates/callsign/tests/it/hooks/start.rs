//! A file of hooks that cannot be loaded keeps the gateway from starting, and says where.

use testkit::bin;

use super::rig::{Hooks, LANE};
use crate::support::setup;

/// A file, and what is said of it after its name.
fn rows() -> [(&'static str, &'static str, &'static str); 9] {
    [
        ("syntax", "export default {\n  \"mcp.call.before\": () => {\n    oh no\n  },\n}\n", ":3:"),
        ("event", "export default {\n  \"mcp.call.befor\": () => {},\n}\n", "mcp.call.befor is not an event"),
        ("no-function", "export default { \"mcp.call.before\": 7 }\n", "must be a function"),
        ("no-default", "export const x = 1\n", "default"),
        ("throws", "\nthrow new Error(\"at load\")\nexport default {}\n", "at load"),
        ("loops", "for (;;) {}\nexport default {}\n", "CPU"),
        ("outside", "import x from \"../x.js\"\nexport default {}\n", ":1:"),
        ("nowhere", "\nimport x from \"./not-there.js\"\nexport default {}\n", ":2:"),
        ("bare", "import fs from \"node:fs\"\nexport default {}\n", ":1:"),
    ]
}

#[tokio::test]
async fn a_broken_file_is_an_error_of_the_configuration() {
    let files: Vec<(String, &str)> =
        rows().iter().map(|(name, text, _)| (format!("{name}.js"), *text)).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let hooks = Hooks::new(&files);
    for (name, _, says) in rows() {
        let file = format!("{name}.js");
        let setup = setup().toml(&hooks.toml(&[&file])).server(LANE, &[&bin("echo-server")], "");
        let commands: [&[&str]; 3] =
            [&["serve", "--listen", "127.0.0.1:0"], &["wrap", "--name", LANE], &["config", "check"]];
        for command in commands {
            let (code, stdout, stderr) = setup.run_alone(command);
            assert_eq!(code, Some(3), "{name}: {command:?}: {stdout}{stderr}");
            let line = stderr.lines().find(|line| line.contains(&hooks.path(&file)));
            let line = line.unwrap_or_else(|| panic!("{name}: {command:?} does not name it: {stderr}"));
            assert!(line.starts_with("error: ") && line.contains(says), "{name}: {command:?}: {line}");
        }
    }
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let hooks = Hooks::new(&[
        ("a.js", "export default {\n  oh no\n}\n"),
        ("fine.js", "export default {}\n"),
        ("b.js", "\n\nexport default { x: 1 }\n"),
    ]);
    let own = format!("hooks = {}", hooks.list(&["b.js", "missing.js"]));
    let setup = setup().toml(&hooks.toml(&["a.js", "fine.js"])).server(LANE, &[&bin("echo-server")], &own);
    for command in
        [&["serve", "--listen", "127.0.0.1:0"][..], &["wrap", "--name", LANE], &["config", "check"]]
    {
        let (code, stdout, stderr) = setup.run_alone(command);
        assert_eq!(code, Some(3), "{command:?}: {stdout}{stderr}");
        for place in [format!("{}:2:", hooks.path("a.js")), hooks.path("b.js"), hooks.path("missing.js")] {
            assert!(stderr.contains(&place), "{command:?}: {place} in {stderr}");
        }
        assert!(!stderr.contains("fine.js"), "{command:?}: {stderr}");
    }
}

/// `wrap` loads what its own server needs, and is not kept from starting by what another one has.
#[tokio::test]
async fn wrap_minds_its_own_server() {
    let hooks = Hooks::new(&[("broken.js", "oh no\n")]);
    let own = format!("hooks = {}", hooks.list(&["broken.js"]));
    let setup =
        setup().server("other", &[&bin("echo-server")], &own).server(LANE, &[&bin("echo-server")], "");
    let (code, _, stderr) = setup.run_alone(&["wrap", "--name", LANE]);
    assert_eq!(code, Some(0), "{stderr}");
    let (code, _, stderr) = setup.run_alone(&["wrap", "--name", "other"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("broken.js:1"), "{stderr}");
}
