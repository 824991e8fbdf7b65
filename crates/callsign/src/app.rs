//! The command line, and which command it means.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::commands;

/// Every MCP call knows who is calling.
///
/// Callsign stands between agents and MCP servers and carries every call: `wrap` in front of one server, started
/// by the host in its place; `serve` in front of many, over HTTP. `mcp` is a server itself: it runs agent sessions.
#[derive(Debug, Parser)]
#[command(name = "callsign", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options every command takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Where keys, tokens and records are kept.
    #[arg(long, global = true, value_name = "DIR", env = "CALLSIGN_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// What is logged to stderr: error, warn, info, debug, trace, or targets like `gateway=debug`.
    #[arg(long, global = true, value_name = "LEVEL", env = "CALLSIGN_LOG", default_value = "info")]
    pub log: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stand in for one server, on stdio: put this into the host's configuration in the server's place.
    Wrap(commands::wrap::WrapArgs),
    /// Run agent sessions for a host, on stdio: put this into the host's configuration as a server of its own.
    Mcp(commands::mcp::McpArgs),
    /// Serve every server of the configuration over HTTP, at /mcp/NAME.
    Serve {
        #[command(flatten)]
        arguments: ServeArgs,
        /// Listen on the socket in the state directory only, unless an address was chosen.
        #[arg(long, alias = "no-listen", hide = true)]
        socket_only: bool,
    },
    /// Start `serve` with an example server and show how to call it.
    Up(ServeArgs),
    /// Put callsign in front of every server in a host's configuration.
    Install(commands::install::InstallArgs),
    /// Take callsign out of a host's configuration, and leave everything else there as it is.
    Uninstall(commands::install::UninstallArgs),
    /// See which hosts are here, what their calls will say of their caller, and what to do where that is little.
    Doctor(commands::doctor::DoctorArgs),
    /// List, rotate and publish the keys that sign who calls, and verify what they signed.
    #[command(subcommand)]
    Keys(commands::keys::KeysCommand),
    /// List agent sessions, make one, or end one.
    Sessions(commands::sessions::SessionsArgs),
    /// Give a session a task, and perhaps wait for what comes of it.
    Submit(commands::submit::SubmitArgs),
    /// List the runs of a session, or cancel one.
    Runs(commands::runs::RunsArgs),
    /// Show what a run did, and with --follow what it does.
    Logs(commands::logs::LogsArgs),
    /// List the files that runs left behind, or read one.
    Artifacts(commands::artifacts::ArtifactsArgs),
    /// Make the image that boxes of a container engine run from.
    #[command(subcommand)]
    Image(commands::image::ImageCommand),
    /// See who called what, when, and how it ended.
    Calls(Box<commands::calls::CallsArgs>),
    /// Check the record of calls, or write it out for other programs.
    #[command(subcommand)]
    Ledger(commands::ledger::LedgerCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
    /// Try hooks out before a call does.
    #[command(subcommand)]
    Hooks(commands::hooks::HooksCommand),
    /// For a host's hooks: reads the hook's JSON on stdin and notes who is about to call.
    Announce(commands::announce::AnnounceArgs),
    /// Make, list and revoke the tokens of principals.
    #[command(subcommand)]
    Token(commands::token::TokenCommand),
    /// List the configured servers, or approve the tools one lists now.
    Servers(commands::servers::ServersArgs),
    /// Print a completion script for a shell.
    Completions { shell: clap_complete::Shell },
    /// The example server that `up` starts: MCP on stdio.
    #[command(hide = true)]
    ExampleServer,
}

#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", env = "CALLSIGN_LISTEN")]
    pub listen: Option<SocketAddr>,
}

pub fn run() -> anyhow::Result<()> {
    let Cli { global, command } = Cli::parse();
    match command {
        Command::Wrap(arguments) => commands::wrap::run(&global, &arguments),
        Command::Mcp(arguments) => commands::mcp::run(&global, &arguments),
        Command::Serve { arguments, socket_only } => commands::serve::run(&global, &arguments, socket_only),
        Command::Up(arguments) => commands::up::run(&global, &arguments),
        Command::Install(arguments) => commands::install::install(&global, &arguments),
        Command::Uninstall(arguments) => commands::install::uninstall(&global, &arguments),
        Command::Doctor(arguments) => commands::doctor::run(&global, &arguments),
        Command::Keys(command) => commands::keys::run(&global, command),
        Command::Sessions(arguments) => commands::sessions::run(&global, &arguments),
        Command::Submit(arguments) => commands::submit::run(&global, &arguments),
        Command::Runs(arguments) => commands::runs::run(&global, &arguments),
        Command::Logs(arguments) => commands::logs::run(&global, &arguments),
        Command::Artifacts(arguments) => commands::artifacts::run(&global, &arguments),
        Command::Image(command) => commands::image::run(&command),
        Command::Calls(arguments) => commands::calls::run(&global, &arguments),
        Command::Ledger(command) => commands::ledger::run(&global, &command),
        Command::Config(command) => commands::config::run(&command),
        Command::Hooks(command) => commands::hooks::run(&global, command),
        Command::Announce(arguments) => commands::announce::run(&global, &arguments),
        Command::Token(command) => commands::token::run(&global, command),
        Command::Servers(arguments) => commands::servers::run(&global, &arguments),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "callsign", &mut std::io::stdout());
            Ok(())
        }
        Command::ExampleServer => crate::example::serve(),
    }
}
