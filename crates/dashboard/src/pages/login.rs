//! Coming in.

use maud::html;

use super::Page;
use crate::gate::Denied;

pub(crate) fn page(denied: Option<&Denied>, to: &str) -> Page {
    let main = html! {
        div.login {
            h1 { "Log in" }
            @match denied {
                Some(Denied::TooOften) => { p.note.bad role="alert" { "Too many tries. Wait ten seconds, then try again." } }
                Some(Denied::Wrong | Denied::Random) => {
                    p.note.bad role="alert" { "That did not count. A link from the terminal works once, for two minutes; a token may have been revoked." }
                }
                None => {}
            }
            form method="post" action="/login" {
                label for="token" { "Token" }
                input #token type="password" name="token" autocomplete="current-password" required autofocus;
                input type="hidden" name="to" value=(to);
                button.primary type="submit" { "Log in" }
            }
            p.hint { "The daemon made one at its first start. It lies in " code { "token" } " in its state directory; " code { "callsign token create NAME" } " prints another." }
        }
    };
    Page::new("Log in", None, main)
}

/// For who was sent here by another page: nobody is let in without wanting it.
pub(crate) fn confirm(code: &str) -> Page {
    let main = html! {
        div.login {
            h1 { "Open the dashboard?" }
            p { "Another page sent you here with a one-time link." }
            form method="post" action="/login" {
                input type="hidden" name="code" value=(code);
                button.primary type="submit" { "Log in with this link" }
            }
        }
    };
    Page::new("Log in", None, main)
}
