//! Images that are made of a base and files of the host.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use crate::harness::{BOTH, IMAGE, World};

#[test]
fn an_image_is_made_without_a_network_and_boxes_run_from_it() {
    for kind in BOTH {
        let world = World::new(kind);
        let mut daemon = world.daemon();
        let program = world.at("opencode");
        fs::write(&program, "#!/bin/sh\necho it runs from the image\nls -l /opt/callsign/config | tail -n +2 | awk '{print $1, $3, $NF}'\n: > /workspace/.done\nsleep 100000\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let plugin = world.at("plugin");
        fs::create_dir_all(plugin.join("node_modules")).unwrap();
        fs::write(plugin.join("package.json"), "{}").unwrap();
        symlink("package.json", plugin.join("link")).unwrap();
        fs::write(world.at("large"), vec![7; 20 << 20]).unwrap();
        let files = json!([
            [program, "/opt/callsign/opencode"],
            [plugin, "/opt/callsign/config"],
            [world.at("large"), "/opt/callsign/bridge"],
        ]);
        let built = daemon.ask(&json!({ "Build": [IMAGE, "opencode-as-mcp-runtime:latest", files] }));
        assert_eq!(built["failed"], json!(null), "{kind:?}: {built}");
        assert!(built["id"].as_str().unwrap().starts_with("sha256:"), "{kind:?}: {built}");
        assert!(built["lines"].to_string().contains("COPY root/ /"), "{kind:?}: {built}");
        let mut spec = world.spec("one", "");
        spec.image = Some("opencode-as-mcp-runtime:latest".to_owned());
        spec.command = "/opt/callsign/opencode".into();
        spec.args.clear();
        let log = world.printed(&mut daemon, &spec);
        let lines: Vec<_> = log.lines().collect();
        assert_eq!(
            lines,
            [
                "it runs from the image",
                "lrwxrwxrwx root package.json",
                "drwxr-xr-x root node_modules",
                "-rw-r--r-- root package.json"
            ],
            "{kind:?}"
        );
        let failed = |base: &str, files| {
            let mut daemon = world.daemon();
            let built = daemon.ask(&json!({ "Build": [base, "opencode-as-mcp-runtime:other", files] }));
            built["failed"].as_str().unwrap_or_else(|| panic!("{built}")).to_owned()
        };
        let error = failed("127.0.0.1:1/no/base:1", json!([]));
        assert!(
            error.contains(
                "the base image 127.0.0.1:1/no/base:1 is not there, and the engine could not fetch it"
            ),
            "{kind:?}: {error}"
        );
        let error = failed("localhost/no/base:1", json!([]));
        assert!(error.ends_with("the base image localhost/no/base:1 is not there"), "{kind:?}: {error}");
        let error = failed(IMAGE, json!([[world.at("nowhere"), "/opt/callsign/x"]]));
        assert!(error.contains("nowhere") && error.contains("No such file"), "{kind:?}: {error}");
        let error = failed(IMAGE, json!([[world.at("large"), "/etc/shadow"]]));
        assert!(error.contains("is no place in an image"), "{kind:?}: {error}");
        world.finish(daemon);
    }
}
