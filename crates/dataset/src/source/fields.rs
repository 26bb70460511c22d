//! Fields of a record's files: their names, and which of them are wanted.

use std::fmt;

use super::super::DatasetError;

/// Field that annotations are stored in.
pub(crate) const ANNOTATION_FIELD: &str = "xml";
/// The field that labels are stored in, as names or numbers of classes.
pub const LABEL_FIELD: &str = "cls";

/// Extensions of files that count as pictures, in lower case.
const PICTURES: [&str; 18] = [
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff", "pbm", "pgm", "ppm", "pnm", "avif",
    "heic", "heif", "hif",
];

/// Extensions of pictures whose formats are not read, in lower case: JPEG XL and JPEG 2000.
const UNREAD_PICTURES: [&str; 6] = ["jxl", "jp2", "j2k", "jpf", "jpx", "j2c"];

/// Extensions of sound files that are read, in lower case.
const SOUNDS: [&str; 18] = [
    "wav", "wave", "flac", "rf64", "w64", "mp3", "ogg", "oga", "opus", "aac", "m4a", "mka", "aif", "aiff", "aifc",
    "au", "snd", "caf",
];

/// Extensions of video files that are read, in lower case.
const VIDEOS: [&str; 5] = ["mp4", "m4v", "mov", "webm", "mkv"];

/// Which files of a record become fields, and the names of the fields. Files are identified by their suffix: the part
/// after the stem that they have in common, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChoice(Vec<(String, String)>);

impl FieldChoice {
    /// Reads `SUFFIX[=NAME],...`, such as `jpg,png=mask,txt`.
    ///
    /// # Errors
    /// [`DatasetError::Option`] for a suffix or name that is invalid, or that occurs twice.
    pub fn parse(text: &str) -> Result<Self, DatasetError> {
        let wrong = |problem: String| DatasetError::Option { option: "fields", problem };
        let mut chosen: Vec<(String, String)> = Vec::new();
        for part in text.split(',') {
            let (suffix, name) = part.split_once('=').unwrap_or((part, part));
            let suffix = field_name(suffix.trim().trim_start_matches('.'));
            let name = field_name(name.trim().trim_start_matches('.'));
            let is_wrong = |name: &str| {
                name.is_empty() || name.ends_with('.') || name.chars().any(|c| c == '/' || c == '=' || c.is_control())
            };
            if is_wrong(&suffix) || is_wrong(&name) {
                return Err(wrong(format!("has `{part}`, which is not SUFFIX or SUFFIX=NAME, as `jpg,png=mask,txt`")));
            }
            for (what, is_same) in [
                ("the suffix", chosen.iter().any(|(other, _)| *other == suffix)),
                ("the field", chosen.iter().any(|(_, other)| *other == name)),
            ] {
                if is_same {
                    let twice = if what == "the suffix" { &suffix } else { &name };
                    return Err(wrong(format!("has {what} `{twice}` twice")));
                }
            }
            chosen.push((suffix, name));
        }
        Ok(Self(chosen))
    }

    /// Returns the names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the name of the field for the file with the suffix `suffix`; `None` if the file is not wanted.
    pub(super) fn name_of(&self, suffix: &str) -> Option<&str> {
        self.0.iter().find(|(chosen, _)| chosen == suffix).map(|(_, name)| name.as_str())
    }

    fn has_pictures(&self) -> bool {
        self.0.iter().any(|(suffix, _)| is_picture(suffix))
    }
}

impl fmt::Display for FieldChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(suffix, name)| format!("{suffix}={name}")).collect();
        f.write_str(&parts.join(","))
    }
}

/// Returns whether a file with this suffix makes a record of the files with its stem: a picture does; if only other
/// files are wanted, each of these does.
pub(super) fn makes_a_record(suffix: &str, choice: Option<&FieldChoice>) -> bool {
    match choice {
        None => is_picture(suffix),
        Some(choice) => {
            choice.name_of(suffix).is_some() && !suffix.contains('.') && (!choice.has_pictures() || is_picture(suffix))
        }
    }
}

fn is_picture(suffix: &str) -> bool {
    PICTURES.contains(&suffix)
}

/// Returns whether a file with this suffix is a sound.
pub(crate) fn is_sound(suffix: &str) -> bool {
    SOUNDS.iter().any(|sound| suffix.eq_ignore_ascii_case(sound))
}

/// Returns whether a file with this suffix is a video.
pub(crate) fn is_video(suffix: &str) -> bool {
    VIDEOS.iter().any(|video| suffix.eq_ignore_ascii_case(video))
}

/// Returns whether a file with this suffix is a picture of a format that is not read.
pub(crate) fn is_unread_picture(suffix: &str) -> bool {
    let last = suffix.rsplit('.').next().unwrap_or_default();
    UNREAD_PICTURES.iter().any(|unread| last.eq_ignore_ascii_case(unread))
}

/// Returns the fields that are pictures in their own right, which masks such as `seg.png` are not.
pub(crate) fn pictures<'f>(fields: impl Iterator<Item = &'f str>) -> Vec<&'f str> {
    fields.filter(|field| is_picture(field)).collect()
}

/// Describes a record with several pictures; `None` if it has none or one.
pub(crate) fn note_of_pictures(key: &str, pictures: &[&str]) -> Option<String> {
    let fields = pictures.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
    (pictures.len() > 1).then(|| {
        format!(
            "`{key}` is one sample with the pictures {fields}, as others with one stem are; pictures that are samples of their own \
             need other names"
        )
    })
}

/// Returns the field of a file with this suffix: in lower case, with `jpg`, `tif` and `wav` for their other spellings.
pub(crate) fn field_name(suffix: &str) -> String {
    let suffix = suffix.to_lowercase();
    let (before, last) = suffix.rsplit_once('.').map_or(("", &*suffix), |(before, last)| (before, last));
    let last = match last {
        "jpeg" | "jpe" | "jfif" => "jpg",
        "tiff" => "tif",
        "wave" => "wav",
        other => other,
    };
    if before.is_empty() { last.to_owned() } else { format!("{before}.{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_fields_names_them() {
        let choice = FieldChoice::parse("jpeg, .png=mask,seg.TIFF=depth,txt").unwrap();
        let names = ["jpg", "png", "seg.tif", "txt", "json"].map(|suffix| choice.name_of(suffix));
        assert_eq!(names, [Some("jpg"), Some("mask"), Some("depth"), Some("txt"), None]);
        assert!(makes_a_record("jpg", Some(&choice)) && !makes_a_record("txt", Some(&choice)));
        assert!(makes_a_record("npy", Some(&FieldChoice::parse("npy,json").unwrap())));
        assert!(makes_a_record("webp", None) && !makes_a_record("txt", None));
    }

    #[test]
    fn a_choice_that_makes_no_sense_is_refused_with_its_part() {
        for (text, expected) in [
            ("", "has ``, which is not SUFFIX"),
            ("jpg,,txt", "has ``"),
            ("jpg=a/b", "has `jpg=a/b`"),
            ("jpg,jpeg=x", "the suffix `jpg` twice"),
            ("jpg,png=jpg", "the field `jpg` twice"),
        ] {
            let error = FieldChoice::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
