//! Decides what is hidden in a folder and no part of a dataset: what version control, file systems and programs keep
//! for themselves.

/// Folders that systems and programs make beside data.
const FOLDERS_OF_OTHERS: [&str; 8] = [
    "__MACOSX",
    "__pycache__",
    "_temporary",
    "@eaDir",
    "#recycle",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
];

/// Returns whether a file is hidden. It is if its name or that of a folder in its path begins with a dot, as in `.git`,
/// `.snapshot`, `.Trash-1000`, macOS's `._a.jpg` and files that rsync has not finished, or is one of the names of
/// `FOLDERS_OF_OTHERS`.
#[must_use]
pub fn is_hidden(path: &str) -> bool {
    path.split('/').any(is_hidden_name)
}

/// Returns whether a shard is hidden. It is if [`is_hidden`] is true, or if the name of a part of its path begins with
/// `_`, as in Spark's `_temporary` and `_delta_log`; pyarrow and Hadoop have the same rule. It is not a rule for
/// pictures and classes: names of cameras (`_DSC0001.JPG`) and of Speech Commands (`_background_noise_`) begin with
/// `_`.
pub(crate) fn is_hidden_shard(path: &str) -> bool {
    is_hidden(path) || path.split('/').any(|part| part.starts_with('_'))
}

/// Returns whether a line of a list names something hidden. Folders above the list's own do not count, nor do those of an
/// absolute path.
pub(super) fn is_hidden_in_list(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    is_hidden_name(name) || !path.starts_with('/') && is_hidden(path.rsplit("../").next().unwrap_or_default())
}

fn is_hidden_name(name: &str) -> bool {
    (name.starts_with('.') && name != "." && name != "..") || FOLDERS_OF_OTHERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_keep_beside_data_is_hidden() {
        for path in [
            ".git/annex/objects/a1/MD5E-s1--0.tar",
            "a/.snapshot/hourly.0/0.tar",
            "a/.Trash-1000/files/0.tar",
            "a/._0.tar",
            ".0.tfrecord.Xa81f",
            "__MACOSX/a/._0.jpg",
            "a/@eaDir/0.jpg/SYNOPHOTO_THUMB_M.jpg",
            "_temporary/0/0.tar",
        ] {
            assert!(is_hidden(path) && is_hidden_shard(path), "{path}");
        }
        for path in ["_DSC0001.JPG", "_background_noise_/0.wav", "a/_0.tar", "_delta_log/0.parquet"] {
            assert!(!is_hidden(path) && is_hidden_shard(path), "{path}");
        }
        for path in ["a.b/c.tar", "a/b_c/d.jpg", "@a/#b/$c.tar", ""] {
            assert!(!is_hidden(path) && !is_hidden_shard(path), "{path}");
        }
    }

    #[test]
    fn a_list_may_lie_anywhere() {
        for path in ["./a.jpg", "../.cache/../b/a.jpg", "/home/me/.cache/a.jpg", "../../a.jpg"] {
            assert!(!is_hidden_in_list(path), "{path}");
        }
        for path in ["./.git/a.jpg", "/home/me/._a.jpg", "../.a.jpg", "__MACOSX/b/a.jpg"] {
            assert!(is_hidden_in_list(path), "{path}");
        }
    }
}
