//! Every way a request ends here instead of at the provider: the only table from there to HTTP.
//!
//! OpenCode shows the message to whoever waits for the run, and tries again after 5xx, after 408 and 429, and after any
//! message with certain words and numbers in it. So what is not worth another try is another 4xx, and its message has no
//! numbers.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::meter::{Cap, Refusal};
use crate::strict::Wrong;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    Head(Wrong),
    Malformed(&'static str),
    Token,
    UnknownPath,
    /// With the one that is answered.
    WrongMethod(Method),
    NotJson,
    Encoded,
    TooLarge,
    /// The box stopped sending its own request.
    Stalled,
    Refused(Refusal),
    /// May go by.
    Unreachable {
        host: String,
        cause: String,
    },
    /// Does not go by.
    Unusable {
        host: String,
        cause: String,
    },
    Silent {
        host: String,
    },
    Redirects {
        host: String,
    },
    /// Its answer is something else, or in an encoding that nobody asked for: it cannot be looked at.
    OddAnswer {
        host: String,
    },
}

impl Problem {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Head(Wrong::TooLong) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Head(Wrong::LineEnds | Wrong::TwoLengths | Wrong::Folded | Wrong::TwoHosts)
            | Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::WrongMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotJson | Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Stalled => StatusCode::REQUEST_TIMEOUT,
            // Not 401 or 403: those are about keys.
            Self::Refused(Refusal::Cap(_)) => StatusCode::PAYMENT_REQUIRED,
            Self::Refused(Refusal::NoRun) => StatusCode::FORBIDDEN,
            Self::Unreachable { .. } => StatusCode::BAD_GATEWAY,
            Self::Unusable { .. } | Self::Silent { .. } | Self::Redirects { .. } | Self::OddAnswer { .. } => {
                StatusCode::FAILED_DEPENDENCY
            }
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Head(_) | Self::Malformed(_) => "bad_request",
            Self::Token => "invalid_api_key",
            Self::UnknownPath => "unknown_path",
            Self::WrongMethod(_) => "method_not_allowed",
            Self::NotJson | Self::Encoded => "unsupported_media_type",
            Self::TooLarge => "request_too_large",
            Self::Stalled => "request_stalled",
            Self::Refused(Refusal::Cap(_)) => "run_budget_exceeded",
            Self::Refused(Refusal::NoRun) => "no_run",
            Self::Unreachable { .. } => "provider_unreachable",
            Self::Unusable { .. } => "provider_unusable",
            Self::Silent { .. } => "provider_silent",
            Self::Redirects { .. } => "provider_redirects",
            Self::OddAnswer { .. } => "provider_odd_answer",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Head(wrong) => wrong.text().to_owned(),
            Self::Malformed(text) => (*text).to_owned(),
            Self::Token => "this is not the token of this session's box".to_owned(),
            Self::UnknownPath => {
                "a box may ask its provider for chat/completions and models, and nothing else".to_owned()
            }
            Self::WrongMethod(method) => format!("this is answered to {method}"),
            Self::NotJson => "send Content-Type: application/json".to_owned(),
            Self::Encoded => "send the body without Content-Encoding".to_owned(),
            Self::TooLarge => "the request is larger than a box may send".to_owned(),
            Self::Stalled => "the request did not come to its end".to_owned(),
            Self::Refused(Refusal::NoRun) => {
                "no run of this session is at work, and only a run may ask its model".to_owned()
            }
            Self::Refused(Refusal::Cap(cap)) => {
                let what = match cap {
                    Cap::Requests => "requests it may make",
                    Cap::Tokens => "tokens it may use",
                };
                format!("this run has used up the {what}; raise `{}` for more", cap.setting())
            }
            Self::Unreachable { host, cause } => {
                format!("the provider at {host} cannot be reached: {cause}")
            }
            Self::Unusable { host, cause } => format!("the provider at {host} cannot be used: {cause}"),
            Self::Silent { host } => {
                format!(
                    "the provider at {host} said nothing for as long as `request_timeout` allows; see whether it \
                     works, or raise it"
                )
            }
            Self::Redirects { host } => {
                format!(
                    "the provider at {host} redirects, which is not followed; set `base_url` to where it leads"
                )
            }
            Self::OddAnswer { host } => {
                format!("the provider at {host} answered in a way that it was not asked for")
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Token => "authentication_error",
            Self::Refused(_) => "permission_error",
            Self::Head(_)
            | Self::Malformed(_)
            | Self::UnknownPath
            | Self::WrongMethod(_)
            | Self::NotJson
            | Self::Encoded
            | Self::TooLarge
            | Self::Stalled => "invalid_request_error",
            Self::Unreachable { .. }
            | Self::Unusable { .. }
            | Self::Silent { .. }
            | Self::Redirects { .. }
            | Self::OddAnswer { .. } => "provider_error",
        }
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let error =
            json!({ "message": self.message(), "type": self.kind(), "param": null, "code": self.code() });
        let body = json!({ "error": error }).to_string();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::WrongMethod(method) = self
            && let Ok(value) = HeaderValue::try_from(method.as_str())
        {
            headers.insert(header::ALLOW, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OpenCode 1.18 tells what to try again, by words and numbers in a message or a body.
    const TRIED_AGAIN: [&str; 16] = [
        "429",
        "500",
        "502",
        "503",
        "504",
        "524",
        "rate limit",
        "overloaded",
        "unavailable",
        "server error",
        "server_error",
        "internal error",
        "connection",
        "timed out",
        "try again",
        "terminated",
    ];

    #[test]
    fn what_is_not_worth_another_try_does_not_look_as_if() {
        let host = || "api.example.org".to_owned();
        let refused = |cap| Problem::Refused(Refusal::Cap(cap));
        for problem in [
            Problem::Malformed("x"),
            Problem::Token,
            Problem::UnknownPath,
            Problem::WrongMethod(Method::GET),
            Problem::NotJson,
            Problem::Encoded,
            Problem::TooLarge,
            refused(Cap::Requests),
            refused(Cap::Tokens),
            Problem::Refused(Refusal::NoRun),
            Problem::Unusable { host: host(), cause: "invalid peer certificate: UnknownIssuer".to_owned() },
            Problem::Silent { host: host() },
            Problem::Redirects { host: host() },
            Problem::OddAnswer { host: host() },
        ] {
            let status = problem.status();
            assert!(
                status.is_client_error() && status != 408 && status != 409 && status != 429,
                "{problem:?}"
            );
            let text = format!("{} {} {}", problem.message(), problem.code(), problem.kind()).to_lowercase();
            for word in TRIED_AGAIN {
                assert!(!text.contains(word), "{text:?} has {word:?}");
            }
        }
        let unreachable = Problem::Unreachable { host: host(), cause: String::new() };
        assert!(unreachable.status().is_server_error());
    }
}
