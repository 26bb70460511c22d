//! The allow-list of stores that a process reads from. Without it, anyone who may submit a job or send a session to a
//! worker can make the process read from any place that it can reach.

use spdl_job::{redact, scheme::UrlScheme};

/// The folders and URLs that datasets have to lie in or below. By default, every place is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stores(Option<Vec<String>>);

impl FromIterator<String> for Stores {
    /// Makes the list of these stores. Without any text, every place is allowed; with only empty texts, no place is.
    fn from_iter<I: IntoIterator<Item = String>>(stores: I) -> Self {
        let stores: Vec<String> = stores.into_iter().map(|store| store.trim().to_owned()).collect();
        let is_named = !stores.is_empty();
        Self(is_named.then(|| stores.into_iter().filter(|store| !store.is_empty()).collect()))
    }
}

impl Stores {
    /// Checks one folder or URL of a list.
    ///
    /// # Errors
    /// Returns a text with advice if the entry is empty, because its value was probably forgotten.
    pub fn parse_place(text: &str) -> Result<String, String> {
        match text.trim() {
            "" => {
                Err("an entry is empty; name folders and URLs, or leave the option out to allow every place".to_owned())
            }
            place => Ok(place.to_owned()),
        }
    }

    /// Checks that a dataset lies in one of the stores; the error lists the stores that are allowed.
    ///
    /// # Errors
    /// A text that names the dataset and the stores.
    pub fn admit(&self, dataset: &str) -> Result<(), String> {
        let Some(stores) = &self.0 else { return Ok(()) };
        if stores.iter().any(|store| is_within(dataset, store)) {
            return Ok(());
        }
        let (dataset, stores) = (redact(dataset), stores.join(", "));
        Err(format!("dataset `{dataset}` is in none of the stores that are read from here (`--stores`): {stores}"))
    }
}

/// Returns whether `url` is `store` or lies below it.
fn is_within(url: &str, store: &str) -> bool {
    let (url, store) = (place(url), place(store));
    let follows = |rest: &str| rest.starts_with('/') || rest.starts_with('@') && UrlScheme::of(&store).has_revisions;
    let is_below = url.strip_prefix(&store).is_some_and(|rest| rest.is_empty() || follows(rest));
    // `..` could lead out of the store again, so such parts are refused.
    is_below && !url.split('/').any(|part| matches!(part, "." | ".."))
}

/// Normalises a folder or URL, because both can be written in many ways.
fn place(text: &str) -> String {
    let text = text.strip_prefix("file://").unwrap_or(text);
    let written = match text.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let scheme = scheme.to_ascii_lowercase();
            let port = match scheme.as_str() {
                "https" => ":443",
                "http" => ":80",
                _ => "",
            };
            let host = host.to_ascii_lowercase();
            let host = if port.is_empty() { &host } else { host.strip_suffix(port).unwrap_or(&host) };
            let path = path.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/");
            format!("{scheme}://{host}{path}")
        }
        None => text.to_owned(),
    };
    written.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_is_within_a_store_that_is_named_however_it_is_written() {
        for (url, store, expected) in [
            ("s3://bucket/a/b", "s3://bucket", true),
            ("S3://bucket/a/b/", "s3://bucket/a/b", true),
            ("s3://bucket-of-another/a", "s3://bucket", false),
            ("s3://bucket/a/../b", "s3://bucket/a", false),
            ("s3://bucket/a/%2e%2E/b", "s3://bucket/a", false),
            ("https://host:443/a", "https://HOST/", true),
            ("https://host:444/a", "https://host", false),
            ("http://169.254.169.254/latest", "https://host", false),
            ("hf://datasets/org/name@main/a", "hf://datasets/org/name", true),
            ("hf://datasets/org/name@v1/a", "hf://datasets/org/", true),
            ("hf://datasets/org/name-2@v1", "hf://datasets/org/name", false),
            ("s3://bucket/a@b", "s3://bucket/a", false),
            ("/data/a", "/data", true),
            ("file:///data/a", "/data/", true),
            ("/database", "/data", false),
            ("/data/../etc", "/data", false),
        ] {
            assert_eq!(is_within(url, store), expected, "{url} in {store}");
            let stores = Stores::from_iter(["s3://other".to_owned(), format!(" {store}\n")]);
            assert_eq!(stores.admit(url).is_ok(), expected, "{url} in {stores:?}");
        }
        assert_eq!(Stores::default().admit("s3://any/where"), Ok(()), "where no store is named");
        assert_eq!(Stores::from_iter([]).admit("s3://any/where"), Ok(()), "where no store is named");
        for empty in [vec![""], vec![" "], vec!["", "", ""]] {
            let stores: Stores = empty.iter().map(ToString::to_string).collect();
            assert!(stores.admit("/any/where").is_err(), "{empty:?} is no list of every place");
            assert!(empty.iter().all(|text| Stores::parse_place(text).is_err()));
        }
        assert_eq!(Stores::parse_place(" s3://mine\n"), Ok("s3://mine".to_owned()));
        let problem = Stores::from_iter(["s3://mine".to_owned()]).admit("https://me:word@host/a").unwrap_err();
        assert!(problem.contains("`https://***@host/a`") && problem.contains("s3://mine"), "{problem}");
    }
}
