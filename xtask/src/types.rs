//! The type declarations of hooks, checked by the TypeScript compiler: the recipes fit, and mistakes are found.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::workspace::Workspace;

/// What an editor would be told: the language, and nothing of a browser or Node.
const CONFIG: &str = r#"{
  "compilerOptions": {
    "strict": true, "noImplicitAny": false, "checkJs": true, "noEmit": true,
    "target": "es2023", "module": "es2022", "moduleResolution": "bundler", "lib": ["es2023"], "types": []
  },
  "include": ["*.js", "*.d.ts"]
}
"#;
const TYPED: &str = "/** @type {import(\"./callsign-hooks\").Hooks} */ export default {";

/// One mistake each, and what the compiler must say of it.
const MISTAKES: [(&str, &str); 6] = [
    ("output.header = {}", "Property 'header' does not exist"),
    ("output.headers['X-N'] = 1", "not assignable to type 'string'"),
    ("input.sessionID = 'x'", "read-only property"),
    ("fetch('https://example.org')", "Cannot find name 'fetch'"),
    ("output.result = {}", "Property 'result' does not exist"),
    ("process.exit(1)", "Property 'exit' does not exist"),
];

pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let hooks = workspace.root.join("crates/hooks");
    let home = TempDir::with_prefix("callsign-types-")?;
    let mut recipes = 0;
    for entry in std::fs::read_dir(hooks.join("recipes"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?.replace("export default {", TYPED);
        std::fs::write(home.path().join(path.file_name().context("a recipe has a name")?), text)?;
        recipes += 1;
    }
    let said = compile(workspace, &hooks, home.path())?;
    ensure!(said.is_empty(), "the recipes do not fit the declarations:\n{said}");
    for (mistake, expected) in MISTAKES {
        let home = TempDir::with_prefix("callsign-types-")?;
        let text =
            format!("{TYPED}\n  \"mcp.call.before\": (input, output) => {{\n    {mistake}\n  }},\n}}\n");
        std::fs::write(home.path().join("bad.js"), text)?;
        let said = compile(workspace, &hooks, home.path())?;
        ensure!(said.contains(expected), "of `{mistake}` the compiler says: {said}");
    }
    Ok(format!("{recipes} recipes fit, {} mistakes are found", MISTAKES.len()))
}

/// What the compiler says; empty where all is well.
fn compile(workspace: &Workspace, hooks: &Path, home: &Path) -> Result<String> {
    std::fs::copy(hooks.join("callsign-hooks.d.ts"), home.join("callsign-hooks.d.ts"))?;
    std::fs::write(home.join("jsconfig.json"), CONFIG)?;
    let node = workspace.which("node").context("node is not installed")?;
    let compiler = workspace.tool("npm").join("node_modules/typescript/bin/tsc");
    ensure!(compiler.is_file(), "the TypeScript compiler is not installed; run cargo xtask tools");
    let output = Command::new(node).arg(compiler).arg("-p").arg(home.join("jsconfig.json")).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
