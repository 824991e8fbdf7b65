//! Which requests of a box are requests to its provider; pure.

use http::{Method, Uri};

use crate::problem::Problem;

/// Where the box finds its provider.
const PREFIX: &str = "/v1";

/// What is asked of a provider: what OpenCode needs, and whose usage is told in the answer. Others let a provider work
/// on when they are answered, and call elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    ChatCompletions,
    /// The list of models, or one of them. Costs nothing.
    Models,
}

impl Endpoint {
    pub(crate) fn method(self) -> Method {
        match self {
            Self::ChatCompletions => Method::POST,
            Self::Models => Method::GET,
        }
    }
}

/// A request that may go on, and the path beneath the provider's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route<'a> {
    pub(crate) endpoint: Endpoint,
    pub(crate) rest: &'a str,
}

pub(crate) fn route<'a>(method: &Method, uri: &'a Uri) -> Result<Route<'a>, Problem> {
    if method == Method::CONNECT || uri.scheme().is_some() || uri.authority().is_some() {
        return Err(Problem::Malformed("this is no proxy; ask with a path alone"));
    }
    if uri.query().is_some() {
        return Err(Problem::Malformed("a request here has no query"));
    }
    let rest = uri.path().strip_prefix(PREFIX).ok_or(Problem::UnknownPath)?;
    let endpoint = match rest {
        "/chat/completions" => Endpoint::ChatCompletions,
        "/models" => Endpoint::Models,
        _ => match rest.strip_prefix("/models/") {
            Some(id) if is_model(id) => Endpoint::Models,
            Some(_) | None => return Err(Problem::UnknownPath),
        },
    };
    if *method == endpoint.method() {
        Ok(Route { endpoint, rest })
    } else {
        Err(Problem::WrongMethod(endpoint.method()))
    }
}

/// Nothing that a server could read as another path: no escapes, no empty part, none of dots alone.
fn is_model(id: &str) -> bool {
    let is_well = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+~".contains(&byte);
    let part_is_well = |part: &str| part.bytes().all(is_well) && part.bytes().any(|byte| byte != b'.');
    id.len() <= 256 && id.split('/').all(part_is_well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, uri: &str, expected: Result<(Endpoint, &str), &str>) {
        let uri: Uri = uri.parse().unwrap();
        let found = route(&method.parse().unwrap(), &uri);
        let found = found.map(|route| (route.endpoint, route.rest)).map_err(|problem| problem.code());
        assert_eq!(found, expected, "{method} {uri}");
    }

    #[test]
    fn what_a_provider_may_be_asked() {
        check("POST", "/v1/chat/completions", Ok((Endpoint::ChatCompletions, "/chat/completions")));
        check("GET", "/v1/models", Ok((Endpoint::Models, "/models")));
        check("GET", "/v1/models/gpt-oss:20b", Ok((Endpoint::Models, "/models/gpt-oss:20b")));
        check("GET", "/v1/models/openai/gpt-4.1", Ok((Endpoint::Models, "/models/openai/gpt-4.1")));
    }

    #[test]
    fn nothing_else_is_asked() {
        for path in [
            "/",
            "/v1",
            "/v1/",
            "/v2/models",
            "/models",
            "/v1/files",
            "/v1/responses",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/fine_tuning/jobs",
            "/v1/organization/admin_api_keys",
            "/v1/models/",
            "/v1/models/.",
            "/v1/models/..",
            "/v1/models/../files",
            "/v1/models/a/../../files",
            "/v1/models//a",
            "/v1/models/a/",
            "/v1/models/%2e%2e/files",
            "/v1/models/a%2f..%2ffiles",
            "/v1/models/...",
            "/v1/./models",
            "/v1//models",
            "//v1/models",
            "/v1/models;a=b",
            "/v1/Models",
            "/v1/models/a\\b",
            "/V1/models",
            "/v1models",
        ] {
            let Ok(uri) = path.parse::<Uri>() else { continue };
            check("GET", &uri.to_string(), Err("unknown_path"));
        }
        let long = format!("/v1/models/{}", "a".repeat(257));
        check("GET", &long, Err("unknown_path"));
        check("GET", "/v1/models?key=sk-1", Err("bad_request"));
        check("GET", "/v1/models?", Err("bad_request"));
        check("GET", "http://evil.example/v1/models", Err("bad_request"));
        check("CONNECT", "evil.example:443", Err("bad_request"));
        check("OPTIONS", "*", Err("unknown_path"));
        for (method, path) in [
            ("GET", "/v1/chat/completions"),
            ("PUT", "/v1/chat/completions"),
            ("DELETE", "/v1/models/a"),
            ("POST", "/v1/models"),
            ("HEAD", "/v1/models"),
        ] {
            check(method, path, Err("method_not_allowed"));
        }
    }
}
