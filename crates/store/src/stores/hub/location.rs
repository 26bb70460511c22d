//! A folder on the Hub, as its URL names it: `hf://datasets/ORG/NAME[@REV][/path]`.

use object_store::path::Path;
use url::Url;

/// The revision of a URL that names none.
const DEFAULT_REVISION: &str = "main";

/// A folder on the Hub, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubLocation {
    /// `ORG/NAME`.
    pub(super) repository: String,
    /// A branch, tag or commit.
    pub(super) revision: String,
    /// The folder in the repository.
    pub(super) folder: Path,
}

impl HubLocation {
    /// Parses a URL; the error is what is wrong with it.
    pub(super) fn of(url: &Url) -> Result<Self, String> {
        let expected = "the Hub's datasets are hf://datasets/ORG/NAME, hf://datasets/ORG/NAME@REVISION/FOLDER";
        let path = url.path().strip_prefix('/').filter(|_| url.host_str() == Some("datasets") && url.query().is_none());
        let path = path.ok_or(expected)?.trim_end_matches('/');
        let mut parts = path.splitn(3, '/');
        let (Some(organisation), Some(name)) = (parts.next(), parts.next()) else { return Err(expected.to_owned()) };
        let (name, revision) = name.split_once('@').unwrap_or((name, DEFAULT_REVISION));
        let folder = Path::from_url_path(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if !is_name(organisation) || !is_name(name) {
            return Err(expected.to_owned());
        }
        // A branch can have a slash in its name, which is `%2F` in a URL.
        let revision = revision.replace("%2F", "/").replace("%2f", "/");
        let is_revision = |part: &str| !matches!(part, "" | "." | "..");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/+".contains(c);
        if !revision.split('/').all(is_revision) || !revision.chars().all(is_plain) {
            return Err(format!("`{revision}` cannot be a revision"));
        }
        Ok(Self { repository: format!("{organisation}/{name}"), revision, folder })
    }

    /// Returns the URL of the folder at a commit.
    pub(super) fn at(&self, commit: &str) -> String {
        let url = format!("hf://datasets/{}@{commit}", self.repository);
        let mut url = Url::parse(&url).expect("a repository's name and a commit have plain letters");
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(self.folder.parts().map(|part| part.as_ref().to_owned()));
        }
        url.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_repository_a_revision_and_a_folder() {
        let of = |url: &str| HubLocation::of(&Url::parse(url).unwrap());
        for (url, repository, revision, folder, at) in [
            ("hf://datasets/org/name", "org/name", "main", "", "hf://datasets/org/name@0"),
            ("hf://datasets/org/na-me.x@v1/", "org/na-me.x", "v1", "", "hf://datasets/org/na-me.x@0"),
            ("hf://datasets/o/n@refs%2Fpr%2F1/a/b%20c", "o/n", "refs/pr/1", "a/b c", "hf://datasets/o/n@0/a/b%20c"),
            ("hf://datasets/o/n/50%25%20ü", "o/n", "main", "50% ü", "hf://datasets/o/n@0/50%25%20%C3%BC"),
        ] {
            let found = of(url).unwrap();
            let expected = (repository, revision, folder);
            assert_eq!((&*found.repository, &*found.revision, found.folder.as_ref()), expected, "{url}");
            assert_eq!(found.at("0"), at);
            assert_eq!(of(at).unwrap().folder, found.folder);
        }
        for url in [
            "hf://datasets",
            "hf://datasets/name",
            "hf://models/org/name",
            "hf://org/name/x",
            "hf://datasets/../name",
            "hf://datasets/org/name@",
            "hf://datasets/org/name@a%2F..%2Fb",
            "hf://datasets/org/name@a?b",
            "hf://datasets/o%2Fr/name",
            "hf://datasets//name",
        ] {
            assert!(of(url).is_err(), "{url}");
        }
    }
}
