//! What answers have in common, whatever form their errors have.

use axum::http::header::ALLOW;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// Seconds after which the same may pass, for `Retry-After`: writes are counted by the second, and a restart takes no
/// longer. Who finds one replica full may as well ask another one.
pub const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The methods that a path takes, out of those of its routes: HEAD goes where GET goes, and OPTIONS tells of them.
pub fn methods<'a>(of_routes: impl IntoIterator<Item = &'a Method>) -> String {
    let mut methods: Vec<_> = of_routes.into_iter().map(Method::as_str).collect();
    if methods.contains(&Method::GET.as_str()) {
        methods.push(Method::HEAD.as_str());
    }
    methods.push(Method::OPTIONS.as_str());
    methods.join(", ")
}

/// The answer to OPTIONS: the methods that a path takes.
pub fn allows(methods: &str) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    allow(response.headers_mut(), methods);
    response
}

/// Says which methods a path takes.
pub fn allow(headers: &mut HeaderMap, methods: &str) {
    if let Ok(value) = HeaderValue::from_str(methods) {
        headers.insert(ALLOW, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_goes_where_get_goes_and_options_everywhere() {
        assert_eq!(methods([&Method::GET, &Method::POST]), "GET, POST, HEAD, OPTIONS");
        assert_eq!(methods([&Method::PUT]), "PUT, OPTIONS");
        let response = allows("PUT, OPTIONS");
        assert_eq!(
            (response.status(), &response.headers()[ALLOW]),
            (StatusCode::NO_CONTENT, &HeaderValue::from_static("PUT, OPTIONS"))
        );
    }
}
