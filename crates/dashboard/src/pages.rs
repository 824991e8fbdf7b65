//! The pages, one file each. A page is a function from what is shown to markup.

pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod diff;
pub(crate) mod hooks;
pub(crate) mod login;
pub(crate) mod overview;
pub(crate) mod problem;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod timeline;
pub(crate) mod tree;
pub(crate) mod why;

use maud::Markup;

pub(crate) use problem::Problem;

use crate::text::Text;

/// A page without what is around it.
pub(crate) struct Page {
    pub(crate) title: Text,
    pub(crate) nav: Option<Nav>,
    pub(crate) main: Markup,
}

impl Page {
    pub(crate) fn new(title: impl Into<Text>, nav: impl Into<Option<Nav>>, main: Markup) -> Self {
        Self { title: title.into(), nav: nav.into(), main }
    }
}

/// What can be reached from everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nav {
    Overview,
    Calls,
    Sessions,
    Runs,
    Servers,
    Hooks,
    Why,
}

impl Nav {
    pub(crate) const ALL: [Self; 7] =
        [Self::Overview, Self::Calls, Self::Sessions, Self::Runs, Self::Servers, Self::Hooks, Self::Why];

    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Calls => "/calls",
            Self::Sessions => "/sessions",
            Self::Runs => "/runs",
            Self::Servers => "/servers",
            Self::Hooks => "/hooks",
            Self::Why => "/why",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Calls => "Calls",
            Self::Sessions => "Sessions",
            Self::Runs => "Runs",
            Self::Servers => "Servers",
            Self::Hooks => "Hooks",
            Self::Why => "Why?",
        }
    }
}
