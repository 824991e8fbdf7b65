//! What went wrong, as a page.

use http::StatusCode;
use maud::html;

use super::Page;
use crate::text::Text;

#[derive(Debug)]
pub(crate) enum Problem {
    /// Not there, or another's.
    Missing,
    Method,
    Origin,
    /// The token of the form is not that of the login.
    Form,
    TooLarge,
    TooOften,
    Busy,
    Refused(Text),
    /// The id by which it is found in the log.
    Failed(String),
}

impl Problem {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Missing => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Origin | Self::Form => StatusCode::FORBIDDEN,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused(_) => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

pub(crate) fn page(problem: &Problem) -> Page {
    let (title, words) = match problem {
        Problem::Missing => (
            "Not here",
            "There is nothing at this address, or it is not yours to see. It may also be older than what is kept.",
        ),
        Problem::Method => ("Not like that", "This address is for a form of a page, not for looking at."),
        Problem::Origin => ("Not from there", "The request came from a page of another origin."),
        Problem::Form => {
            ("Try again", "The form is of an older login. Go back, reload the page and send it again.")
        }
        Problem::TooLarge => ("Too much", "The form was too large, or took too long to arrive."),
        Problem::TooOften => ("Too many", "Too many live pages are open. Close some, then reload."),
        Problem::Busy => ("Busy", "What you asked for cannot be read right now. Reload in a moment."),
        Problem::Refused(_) => ("Refused", "That could not be done."),
        Problem::Failed(_) => ("That did not work", "The page could not be made. The daemon's log says why."),
    };
    let main = html! {
        div.problem {
            p.code { (problem.status().as_u16()) }
            h1 { (title) }
            p { (words) }
            @match problem {
                Problem::Refused(why) => { pre.text { (why.block()) } }
                Problem::Failed(id) => { p { "In the log it is " code { "incident=" (id) } "." } }
                _ => {}
            }
            p { a href="/" { "To the overview" } }
        }
    };
    Page::new(title, None, main)
}
