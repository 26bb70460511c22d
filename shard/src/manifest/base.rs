//! The base of a manifest: the folder that the shards lie in, if it is not the manifest's own folder. It is text from a
//! file that anyone may have written; what it may refer to is checked here and where the folder is opened.

use spdl_job::{redact, scheme::UrlScheme, secret_in};

use super::names::is_relative_path;

/// Length of the longest base, in bytes.
pub(super) const MAX_BASE_BYTES: usize = 4096;

/// A base by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaseKind<'b> {
    /// A URL.
    Url(&'b str),
    /// An absolute path on the machine that reads the manifest.
    Path(&'b str),
    /// A folder beside or below that of the manifest: how many folders to go up, 0 or 1, and the path from there, which
    /// can be empty.
    Relative(usize, &'b str),
}

impl<'b> BaseKind<'b> {
    /// Returns the kind of `base`, or what is wrong with it.
    pub(crate) fn of(base: &'b str) -> Result<Self, String> {
        if base.is_empty() || base.len() > MAX_BASE_BYTES || base.chars().any(char::is_control) {
            return Err("it has 1 to 4096 bytes, and no control characters".to_owned());
        }
        if let Some((scheme, _)) = base.split_once("://") {
            return match secret_in(base) {
                Some(problem) => Err(problem),
                None if scheme.eq_ignore_ascii_case("file") => Err("local folders are paths, not URLs".to_owned()),
                None => Ok(Self::Url(base)),
            };
        }
        let (up, path) = match base.strip_prefix("..") {
            Some("") => return Ok(Self::Relative(1, "")),
            Some(rest) if rest.starts_with('/') => (1, &rest[1..]),
            _ => (0, base),
        };
        match base.strip_prefix('/') {
            Some(absolute) if is_relative_path(absolute) => Ok(Self::Path(base)),
            None if is_relative_path(path) => Ok(Self::Relative(up, path)),
            _ => Err("its parts are names, after `..` at most once".to_owned()),
        }
    }
}

/// Returns the text of an error about a base, without secrets.
pub(super) fn unusable(base: &str, problem: &str) -> String {
    format!("`{}` cannot be the place of its shards: {problem}", redact(base).escape_debug())
}

/// Returns the base with which a manifest in the folder `manifest` names the folder `shards`: relative if that lies
/// beside or below it, so that both can be moved together; `None` if it is the same folder. Both are absolute paths, or
/// URLs without a slash at the end.
pub(crate) fn base_between(manifest: &str, shards: &str) -> Option<String> {
    if manifest == shards {
        return None;
    }
    let below = |folder: &str| Some(shards.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
    let beside = || {
        let parent = UrlScheme::parent(manifest)?;
        if parent == shards { Some("..".to_owned()) } else { Some(format!("../{}", below(parent)?)) }
    };
    let relative = below(manifest).or_else(beside);
    let relative = relative.filter(|base| matches!(BaseKind::of(base), Ok(BaseKind::Relative(..))));
    Some(relative.unwrap_or_else(|| shards.to_owned()))
}

/// Returns the folder that a relative base names, in or beside `manifest`; `None` if that would leave the store.
pub(crate) fn folder_at(manifest: &str, up: usize, path: &str) -> Option<String> {
    let folder = if up == 0 { manifest } else { UrlScheme::parent(manifest)? };
    Some(if path.is_empty() { folder.to_owned() } else { format!("{folder}/{path}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_relative_where_manifest_and_shards_can_be_moved_together() {
        for (manifest, shards, expected) in [
            ("/data/set", "/data/set", None),
            ("/data", "/data/set/a", Some("set/a")),
            ("/data/set/manifest", "/data/set", Some("..")),
            ("/data/manifest", "/data/set", Some("../set")),
            ("/data/set", "/data/set-2", Some("../set-2")),
            ("/home/me/manifest", "/data/set", Some("/data/set")),
            ("/manifest", "/set", Some("/set")),
            ("/data/manifest", "s3://bucket/set", Some("s3://bucket/set")),
            ("s3://bucket/manifests", "s3://bucket/set", Some("../set")),
            ("s3://bucket", "s3://bucket/set", Some("set")),
            ("s3://bucket", "s3://other", Some("s3://other")),
            ("https://host/a b", "https://host/a%20b/../c", Some("https://host/a%20b/../c")),
        ] {
            let base = base_between(manifest, shards);
            assert_eq!(base.as_deref(), expected, "{shards} from {manifest}");
            if let Some(BaseKind::Relative(up, path)) = base.as_deref().map(|base| BaseKind::of(base).unwrap()) {
                assert_eq!(folder_at(manifest, up, path).as_deref(), Some(shards));
            }
        }
        assert_eq!(folder_at("s3://bucket", 1, "x"), None, "no other bucket");
        assert_eq!(folder_at("/data", 1, "x"), None);
        assert_eq!(folder_at("hf://datasets/org/set@v1", 1, "x"), None, "no other repository");
        assert_eq!(folder_at("hf://datasets/org/set@v1/a", 1, "x").as_deref(), Some("hf://datasets/org/set@v1/x"));
    }

    #[test]
    fn what_is_no_folder_or_hides_one_is_no_base() {
        for base in [
            "",
            "a//b",
            "./a",
            "a/../b",
            "../../a",
            "/data/../etc",
            "/",
            "//a",
            "a\nb",
            "file:///etc",
            "FILE:///etc",
            "https://me:word@host/a",
            "s3://bucket/a?X-Amz-Signature=1",
        ] {
            assert!(BaseKind::of(base).is_err(), "{base}");
        }
        let problem = BaseKind::of("https://me:word@host/a").unwrap_err();
        assert!(!problem.contains("word@") && problem.contains("NETRC"), "{problem}");
        assert_eq!(BaseKind::of("..x/y"), Ok(BaseKind::Relative(0, "..x/y")));
    }
}
