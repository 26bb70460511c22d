//! The stages that a sample passes between the store and the trainer: the one list of their names, for statistics,
//! stalls, metrics, verdicts and `spdl-ctl status`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines [`Stage`] and its table of names, so that a new stage is one line.
macro_rules! stages {
    ($($(#[doc = $doc:literal])+ $stage:ident = $name:literal,)+) => {
        /// A stage that a sample passes. Between processes and in JSON it is its name.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Stage {
            $($(#[doc = $doc])+ $stage,)+
            /// A stage that this list does not have: one of a newer peer, or of a pipeline with stages of its own.
            Other(String),
        }

        impl Stage {
            /// The stages of this version, in the order in which a sample passes them.
            pub const KNOWN: &'static [Self] = &[$(Self::$stage),+];

            /// Returns the name of the stage.
            #[must_use]
            pub const fn name(&self) -> &str {
                match self {
                    $(Self::$stage => $name,)+
                    Self::Other(name) => name.as_str(),
                }
            }
        }

        impl From<String> for Stage {
            fn from(name: String) -> Self {
                match name.as_str() {
                    $($name => Self::$stage,)+
                    _ => Self::Other(name),
                }
            }
        }
    };
}

stages! {
    /// Opens a dataset: its manifest and the order.
    Open = "open",
    /// Reads bytes from a store.
    Fetch = "fetch",
    /// Decodes a sample into its place in a slot.
    Decode = "decode",
    /// Calls a function of the user's in Python; a part of [`Decode`](Self::Decode).
    Transform = "transform",
    /// Gives a filled slot to the trainer, which gives it back.
    HandOver = "hand-over",
    /// Sends a batch to a trainer on another node.
    Send = "send",
    /// Receives a batch on the trainer's side.
    Receive = "receive",
    /// Copies a batch to a device.
    Copy = "copy",
}

impl From<&str> for Stage {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Stage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::{IntoDeserializer, value::Error};

    use super::*;

    #[test]
    fn a_known_stage_is_read_back_from_its_name() {
        for stage in Stage::KNOWN {
            assert_eq!(Stage::from(stage.name()), *stage);
            assert_eq!(stage.to_string(), stage.name());
        }
        let mut names: Vec<&str> = Stage::KNOWN.iter().map(Stage::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Stage::KNOWN.len(), "no two stages share a name");
    }

    #[test]
    fn a_stage_of_a_newer_peer_is_shown_by_its_name() {
        let read = Stage::deserialize::<serde::de::value::StrDeserializer<'_, Error>>("tokenise".into_deserializer());
        let stage = read.unwrap();
        assert_eq!(stage, Stage::Other("tokenise".to_owned()));
        assert_eq!(format!("stage `{stage}`"), "stage `tokenise`");
    }
}
