//! `[serve]`: how the daemon is reached.

use std::net::{Ipv4Addr, SocketAddr};

use super::context::Context;
use super::table::{Field, Table};

const KEYS: [&str; 3] = ["listen", "auth", "allowed_origins"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
    pub listen: SocketAddr,
    /// Whether somebody chose it: in the file, or with `--listen`.
    pub is_chosen: bool,
    /// `None` only with a loopback address in `listen`.
    pub auth: Auth,
    /// As browsers send them: lower case, no path.
    pub allowed_origins: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// A bearer token on every route but the public ones.
    Token,
    /// Every process of this machine is let in.
    None,
}

/// Without a token, and open to other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`auth = \"none\"` is accepted on loopback only, not on {0}; listen on 127.0.0.1 or use \"token\"")]
pub struct OpenToOthers(pub SocketAddr);

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7171)),
            is_chosen: false,
            auth: Auth::Token,
            allowed_origins: Vec::new(),
        }
    }
}

impl ServeConfig {
    /// For `--listen`, which wins over the file.
    pub fn listening_on(self, listen: SocketAddr) -> Result<Self, OpenToOthers> {
        if self.auth == Auth::None && !listen.ip().is_loopback() {
            return Err(OpenToOthers(listen));
        }
        Ok(Self { listen, is_chosen: true, ..self })
    }
}

pub(super) fn read(context: Context<'_>, table: &Table<'_>) -> ServeConfig {
    table.check_keys(context, &KEYS, &[]);
    let mut config = ServeConfig::default();
    if let Some(listen) = table.get("listen").and_then(|field| listen(context, field)) {
        (config.listen, config.is_chosen) = (listen, true);
    }
    if let Some(origins) = table.get("allowed_origins").and_then(|field| origins(context, field)) {
        config.allowed_origins = origins;
    }
    let Some(field) = table.get("auth") else {
        return config;
    };
    config.auth = auth(context, field).unwrap_or(Auth::Token);
    if let Err(problem) = config.clone().listening_on(config.listen) {
        context.mistake(field.at, problem.to_string());
    }
    config
}

fn listen(context: Context<'_>, field: &Field<'_>) -> Option<SocketAddr> {
    let text = field.string(context)?;
    let address = text.parse().ok();
    if address.is_none() {
        let message =
            format!("`listen` must be an address and a port such as \"127.0.0.1:7171\", not {text:?}");
        context.mistake(field.at, message);
    }
    address
}

fn auth(context: Context<'_>, field: &Field<'_>) -> Option<Auth> {
    match field.string(context)? {
        "token" => Some(Auth::Token),
        "none" => Some(Auth::None),
        other => {
            context.mistake(field.at, format!("`auth` must be \"token\" or \"none\", not {other:?}"));
            None
        }
    }
}

fn origins(context: Context<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let mut origins = Vec::new();
    for item in field.list(context, "a list of origins")? {
        let Some(text) = item.string(context) else {
            continue;
        };
        if !is_origin(text) {
            let message =
                format!("an origin is a scheme and a host such as \"https://app.example\", not {text:?}");
            context.mistake(item.at, message);
            continue;
        }
        origins.push(text.to_ascii_lowercase());
    }
    Some(origins)
}

/// Not only http: editors and browser extensions have schemes of their own.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let scheme_is_well = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let host_is_well = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*\\".contains(&byte));
    !scheme.is_empty() && scheme_is_well && !host.is_empty() && host_is_well
}
