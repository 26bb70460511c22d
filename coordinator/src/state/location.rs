//! The location of the state as text: a directory, or `etcd://HOST:PORT,.../PREFIX`.

use std::{fmt, path::PathBuf, str::FromStr};

/// The prefix of the keys if the location names none.
const DEFAULT_PREFIX: &str = "spdl";

/// The location of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateLocation {
    /// In a directory, for one coordinator.
    Directory(PathBuf),
    /// In etcd, for one coordinator or several.
    Etcd {
        /// The etcd members, as `HOST:PORT`.
        members: Vec<String>,
        /// The prefix of the keys, without a slash at its end.
        prefix: String,
    },
}

/// The error for a text that is no valid location of the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no member of etcd; write etcd://HOST:PORT,.../PREFIX")]
pub struct LocationError {
    text: String,
}

impl FromStr for StateLocation {
    type Err = LocationError;

    /// Parses a location. Any text that does not begin with `etcd://` is a path.
    fn from_str(text: &str) -> Result<Self, LocationError> {
        let Some(rest) = text.strip_prefix("etcd://") else { return Ok(Self::Directory(text.into())) };
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let members = members.split(',').map(str::trim).filter(|member| !member.is_empty()).map(str::to_owned);
        let members: Vec<String> = members.collect();
        if members.is_empty() {
            return Err(LocationError { text: text.to_owned() });
        }
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { DEFAULT_PREFIX } else { prefix };
        Ok(Self::Etcd { members, prefix: prefix.to_owned() })
    }
}

impl fmt::Display for StateLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Etcd { members, prefix } => write!(f, "etcd://{}/{prefix}", members.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_as_it_is_written() {
        for (text, members, prefix) in [
            ("etcd://a:2379", &["a:2379"][..], "spdl"),
            ("etcd://a:2379, b:2379/", &["a:2379", "b:2379"], "spdl"),
            ("etcd://a:2379/teams/vision/", &["a:2379"], "teams/vision"),
        ] {
            let members = members.iter().map(|&member| member.to_owned()).collect();
            let expected = StateLocation::Etcd { members, prefix: prefix.to_owned() };
            assert_eq!(text.parse(), Ok(expected.clone()));
            assert_eq!(expected.to_string().parse(), Ok(expected));
        }
        assert!("etcd:///spdl".parse::<StateLocation>().is_err());
        assert_eq!("state/etcd".parse(), Ok(StateLocation::Directory("state/etcd".into())));
    }
}
