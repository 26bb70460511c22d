//! What the URLs of stores say by themselves: one row for each store. How a store is opened, `spdl-store` knows.

/// The place for users and passwords of web servers.
const NETRC: &str = "NETRC, which names a netrc file with `machine HOST login USER password PASSWORD`";

/// The URLs of one store.
#[derive(Debug)]
pub struct UrlScheme {
    /// The schemes by which it is documented.
    pub names: &'static [&'static str],
    /// Other schemes that mean the same store.
    pub aliases: &'static [&'static str],
    /// Those of its schemes whose URLs have a container's name where others have a user: `abfs://CONTAINER@HOST`.
    pub with_container: &'static [&'static str],
    /// A folder that has no folder above it.
    pub root: &'static str,
    /// Whether a revision can follow the root, after an `@`.
    pub has_revisions: bool,
    /// Where credentials belong, which no URL may have.
    pub credentials: &'static str,
}

/// A folder of this machine, which a path or a URL names.
pub static LOCAL: UrlScheme = UrlScheme { names: &["file"], root: "/FOLDER", ..PLAIN };
/// S3 and the servers that speak its protocol.
pub static S3: UrlScheme = UrlScheme {
    names: &["s3"],
    aliases: &["s3a"],
    credentials: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ..PLAIN
};
/// Google's store.
pub static GOOGLE: UrlScheme = UrlScheme { names: &["gs"], credentials: "GOOGLE_APPLICATION_CREDENTIALS", ..PLAIN };
/// Azure's store.
pub static AZURE: UrlScheme = UrlScheme {
    names: &["az"],
    aliases: &["adl", "azure", "abfs", "abfss"],
    with_container: &["abfs", "abfss"],
    credentials: "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
    ..PLAIN
};
/// The Hugging Face Hub.
pub static HUB: UrlScheme =
    UrlScheme { names: &["hf"], root: "hf://datasets/ORG/NAME", has_revisions: true, credentials: "HF_TOKEN", ..PLAIN };
/// Web servers.
pub static WEB: UrlScheme = UrlScheme { names: &["http", "https"], ..PLAIN };

/// All of them, in the order in which they are documented.
pub static URL_SCHEMES: [&UrlScheme; 6] = [&LOCAL, &S3, &GOOGLE, &AZURE, &HUB, &WEB];

const PLAIN: UrlScheme = UrlScheme {
    names: &[],
    aliases: &[],
    with_container: &[],
    root: "SCHEME://HOST",
    has_revisions: false,
    credentials: NETRC,
};

impl UrlScheme {
    /// Returns the scheme of a URL or path. That of a URL which no store has is a web server's.
    #[must_use]
    pub fn of(url_or_path: &str) -> &'static Self {
        match url_or_path.split_once("://") {
            Some((name, _)) => URL_SCHEMES.into_iter().find(|scheme| scheme.has(name)).unwrap_or(&WEB),
            None => &LOCAL,
        }
    }

    /// Returns whether the store has URLs with the scheme `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().chain(self.aliases).any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Returns the folder above `folder`, which is a path, or a URL without a slash at the end; `None` if it is a root.
    #[must_use]
    pub fn parent(folder: &str) -> Option<&str> {
        let (parent, _) = folder.rsplit_once('/')?;
        let root_parts = Self::of(folder).root.split('/').count();
        (parent.split('/').count() >= root_parts).then_some(parent)
    }

    /// Returns the name of `folder`, the last part of its URL, without a revision.
    #[must_use]
    pub fn name(folder: &str) -> &str {
        let last = folder.rsplit('/').next().unwrap_or_default();
        if Self::of(folder).has_revisions { last.split('@').next().unwrap_or_default() } else { last }
    }
}
