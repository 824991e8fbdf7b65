//! The three files that pages need, embedded.

pub(crate) struct Asset {
    pub(crate) kind: &'static str,
    pub(crate) content: &'static str,
}

pub(crate) const STYLE: &str = "/assets/dashboard.css";
pub(crate) const SCRIPT: &str = "/assets/dashboard.js";
pub(crate) const ICON: &str = "/assets/icon.svg";

pub(crate) fn find(path: &str) -> Option<Asset> {
    let (kind, content) = match path {
        STYLE => ("text/css; charset=utf-8", include_str!("../assets/dashboard.css")),
        SCRIPT => ("text/javascript; charset=utf-8", include_str!("../assets/dashboard.js")),
        ICON => ("image/svg+xml", include_str!("../assets/icon.svg")),
        _ => return None,
    };
    Some(Asset { kind, content })
}
