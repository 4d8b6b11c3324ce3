//! The URL of a registry, as `--registry-url` takes it.

use std::fmt;
use std::str::FromStr;
use url::{Host, Url};

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// Plaintext.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As it is written in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of a URL that names none.
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Where a registry is reached. Its text always names the port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistryUrl {
    scheme: Scheme,
    /// As it is written in a URL: IPv6 addresses in brackets.
    host: String,
    port: u16,
}

/// Why a text is not a [`RegistryUrl`], or a list of them cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// It is no URL.
    #[error(
        "registry URL {value:?}: {problem}; write it as https://host or http://host:9090, IPv6 hosts in brackets"
    )]
    Syntax {
        /// The text.
        value: String,
        /// What the parser says.
        problem: String,
    },
    /// It has something besides scheme, host and port.
    #[error("registry URL {value:?}: must have nothing but scheme, host and port, but has a {part}")]
    Surplus {
        /// The text.
        value: String,
        /// What it has besides.
        part: &'static str,
    },
    /// There is no URL.
    #[error("no registry URL is given")]
    None,
    /// The URLs have several schemes.
    #[error("registry URLs must be all of one scheme, but {first} and {other} differ")]
    MixedSchemes {
        /// The first URL.
        first: RegistryUrl,
        /// The first of the other scheme.
        other: RegistryUrl,
    },
    /// Plaintext, and that was not allowed.
    #[error("registry URL {url} is plaintext, which --registry-allow-insecure-http must allow")]
    Insecure {
        /// The URL.
        url: RegistryUrl,
    },
    /// TLS, and nobody said whom to believe.
    #[error("registry URL {url} needs TLS, and no CAs are known that would sign for it")]
    NoTls {
        /// The URL.
        url: RegistryUrl,
    },
}

impl RegistryUrl {
    /// Its scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Its host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Checks a list of URLs in failover order: at least one, all of one scheme, plaintext only where allowed.
    ///
    /// # Errors
    /// The rule that the list breaks and the URL that breaks it.
    pub fn check_all(urls: &[Self], allow_insecure_http: bool) -> Result<(), InvalidUrl> {
        let first = urls.first().ok_or(InvalidUrl::None)?;
        if let Some(other) = urls.iter().find(|url| url.scheme != first.scheme) {
            return Err(InvalidUrl::MixedSchemes { first: first.clone(), other: other.clone() });
        }
        match first.scheme {
            Scheme::Http if !allow_insecure_http => Err(InvalidUrl::Insecure { url: first.clone() }),
            Scheme::Http | Scheme::Https => Ok(()),
        }
    }
}

impl fmt::Display for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.as_str(), self.host, self.port)
    }
}

impl FromStr for RegistryUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax =
            |problem: &str| InvalidUrl::Syntax { value: text.to_owned(), problem: problem.to_owned() };
        // The parser would leave some of these out.
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(syntax("it must be without spaces and control characters"));
        }
        let scheme = match text.split_once("://").map(|(scheme, _)| scheme) {
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
            _ => return Err(syntax("the scheme must be https or http")),
        };
        let url = Url::parse(text).map_err(|error| syntax(&error.to_string()))?;
        let surplus = [
            (!url.username().is_empty() || url.password().is_some(), "user name"),
            (!matches!(url.path(), "" | "/"), "path"),
            (url.query().is_some(), "query"),
            (url.fragment().is_some(), "fragment"),
        ];
        if let Some((_, part)) = surplus.into_iter().find(|(has, _)| *has) {
            // The text is not repeated where it may hold a password.
            let value =
                if part == "user name" { format!("{}://…", scheme.as_str()) } else { text.to_owned() };
            return Err(InvalidUrl::Surplus { value, part });
        }
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => format!("[{address}]"),
            _ => return Err(syntax("the host is missing")),
        };
        match url.port() {
            Some(0) => Err(syntax("the port must not be 0")),
            port => Ok(Self { scheme, host, port: port.unwrap_or_else(|| scheme.default_port()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        text.parse::<RegistryUrl>().map_or_else(|error| format!("refused: {error}"), |url| url.to_string())
    }

    /// O59: IPv6 in URLs.
    #[test]
    fn a_url_is_read_with_its_default_port_and_ipv6_in_brackets() {
        let cases = [
            ("https://registry.example", "https://registry.example:443"),
            ("http://registry.example/", "http://registry.example:80"),
            ("http://10.0.0.1:9090", "http://10.0.0.1:9090"),
            ("https://[fd00::1]", "https://[fd00::1]:443"),
            ("http://[FD00:0::1]:9090", "http://[fd00::1]:9090"),
            ("http://registry.example:443", "http://registry.example:443"),
        ];
        assert_eq!(cases.map(|(text, _)| read(text)), cases.map(|(_, url)| url.to_owned()));
    }

    #[test]
    fn the_host_of_a_url_is_without_brackets() {
        let host = |text: &str| text.parse::<RegistryUrl>().map(|url| (url.host().to_owned(), url.port()));
        assert_eq!(host("https://[fd00::1]:9090"), Ok(("fd00::1".to_owned(), 9090)));
        assert_eq!(host("https://registry.example"), Ok(("registry.example".to_owned(), 443)));
    }

    #[test]
    fn what_is_not_scheme_host_and_port_is_refused() {
        for text in [
            "",
            "registry.example:9090",
            "grpc://registry.example",
            "http://",
            "http://fd00::1:9090",
            "http://[fd00::1",
            "http://registry.example:0",
            "http://registry.example:99999",
            "http://registry.example/path",
            "http://registry.example/?q=1",
            "http://registry.example/#f",
            "http://registry.example\r\n",
            "http://regis\ttry.example",
            " http://registry.example",
        ] {
            assert!(read(text).starts_with("refused: "), "{text} gave {}", read(text));
        }
        assert_eq!(
            read("http://me:secret@registry.example"),
            "refused: registry URL \"http://…\": must have nothing but scheme, host and port, but has a user name"
        );
    }

    #[test]
    fn a_list_has_one_scheme_and_plaintext_only_where_allowed() {
        let urls =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<RegistryUrl>>();
        let check = |texts: &[&str], allow| {
            RegistryUrl::check_all(&urls(texts), allow).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["http://a", "http://b"], true), Ok(()));
        assert_eq!(check(&[], true), Err("no registry URL is given".to_owned()));
        assert_eq!(
            check(&["http://a", "https://b"], true),
            Err("registry URLs must be all of one scheme, but http://a:80 and https://b:443 differ"
                .to_owned())
        );
        assert_eq!(
            check(&["http://a"], false),
            Err("registry URL http://a:80 is plaintext, which --registry-allow-insecure-http must allow"
                .to_owned())
        );
        assert_eq!(check(&["https://a", "https://b"], false), Ok(()));
    }
}
