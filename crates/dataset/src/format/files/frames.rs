//! Groups pictures into videos: the pictures of a folder whose names differ in a number are the frames of one, in the order of these
//! numbers.
//!
//! Frames are counted as they lie: numbers that are missing leave no hole. Pictures of one folder whose names also differ in what is
//! around the number, such as `flow_x_00001.jpg` and `img_00001.jpg`, are lists of their own, in fields that are named by it.

use std::{cmp::Ordering, ops::Range};

use spdl_shard::format::MAX_LIST_FILES;

use super::records::{ListedRecord, is_picture_file, last_dot, name_at};
use crate::{LeftOutReason, Listing, field_name};

/// Maximum number of lists of frames in one folder.
const MAX_LISTS: usize = 16;
/// What stands between a number and the words around it.
const SEPARATORS: [char; 4] = ['_', '-', '.', ' '];

/// A video: the frames of a folder.
pub(super) struct ListedVideo {
    /// The frames of each field, one after the other.
    pub(super) record: ListedRecord,
    /// What is odd about their numbers.
    pub(super) note: Option<String>,
}

/// A picture that is a frame.
struct NamedFrame<'n> {
    /// Number of its file in the listing.
    number: usize,
    name: FrameName<'n>,
    /// What the name of its field ends with.
    field: String,
}

/// The name of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameName<'n> {
    /// What is before the number.
    before: &'n str,
    /// Its number: digits, and dots between digits.
    number: &'n str,
    /// What is behind the number, up to the extension.
    behind: &'n str,
    extension: &'n str,
}

impl<'n> FrameName<'n> {
    /// Reads the name of the file at `path`; `None` if it is none of a picture, or has no number.
    fn of(path: &'n str) -> Option<Self> {
        let dot = last_dot(path).filter(|_| is_picture_file(path))?;
        let (stem, extension) = (&path[name_at(path)..dot], &path[dot + 1..]);
        let is_digit = |at: usize| stem.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let end = stem.rfind(|c: char| c.is_ascii_digit())? + 1;
        let is_of_number = |at: usize| is_digit(at) || stem.as_bytes()[at] == b'.' && is_digit(at - 1);
        let start = (1..end).rev().take_while(|at| is_of_number(*at)).last().unwrap_or(end - 1);
        let start = if start == 1 && is_digit(0) { 0 } else { start };
        Some(Self { before: &stem[..start], number: &stem[start..end], behind: &stem[end..], extension })
    }

    /// Returns what it has in common with the frames of its list, beside the words before the number.
    fn field(self) -> String {
        let behind = self.behind.trim_matches(SEPARATORS);
        let suffix = if behind.is_empty() { self.extension.to_owned() } else { format!("{behind}.{}", self.extension) };
        field_name(&suffix)
    }

    /// Compares numbers: 9 comes before 10 and before 9.5.
    fn compare_numbers(self, other: Self) -> Ordering {
        let parts = |name: Self| name.number.split('.').map(|digits| digits.trim_start_matches('0'));
        parts(self).map(|digits| (digits.len(), digits)).cmp(parts(other).map(|digits| (digits.len(), digits)))
    }
}

/// Returns the files of the folder that file number `first` is the first one of.
pub(super) fn folder(files: &Listing, first: usize) -> Range<usize> {
    let folder = |number: usize| folder_of(files.get(number).name);
    first..(first + 1..files.len()).find(|number| folder(*number) != folder(first)).unwrap_or(files.len())
}

/// Returns the folder of a file, without a slash at its end.
pub(super) fn folder_of(path: &str) -> &str {
    path[..name_at(path)].trim_end_matches('/')
}

/// Makes a video of the frames among the files of one `folder`; `None` if there are none. All others are `left_out`.
pub(super) fn video(
    files: &Listing,
    folder: Range<usize>,
    mut left_out: impl FnMut(&str, LeftOutReason),
) -> Option<ListedVideo> {
    let key = folder_of(files.get(folder.start).name);
    let mut frames: Vec<NamedFrame<'_>> = Vec::new();
    for number in folder {
        let path = files.get(number).name;
        match FrameName::of(path).filter(|_| !key.is_empty()) {
            Some(name) => frames.push(NamedFrame { number, name, field: name.field() }),
            None => left_out(path, LeftOutReason::NoFrame),
        }
    }
    let mut refuse = |frames: &[NamedFrame<'_>], why| {
        frames.iter().for_each(|frame| left_out(files.get(frame.number).name, why));
    };
    if u32::try_from(frames.iter().map(|frame| files.get(frame.number).bytes).sum::<u64>()).is_err() {
        refuse(&frames, LeftOutReason::TooLarge);
        return None;
    }
    frames.sort_by(|a, b| {
        let words = (&a.field, a.name.before).cmp(&(&b.field, b.name.before));
        words.then_with(|| a.name.compare_numbers(b.name))
    });
    let lists: Vec<&[NamedFrame<'_>]> =
        frames.chunk_by(|a, b| (&a.field, a.name.before) == (&b.field, b.name.before)).collect();
    if lists.len() > MAX_LISTS {
        refuse(&frames, LeftOutReason::ManyNames);
        return None;
    }
    let mut fields: Vec<String> = Vec::new();
    let (mut found, mut note) = (Vec::new(), None);
    for list in &lists {
        let NamedFrame { name, field, .. } = &list[0];
        let before = name.before.trim_matches(SEPARATORS);
        let is_only = lists.iter().filter(|other| other[0].field == *field).count() == 1;
        let field = if is_only || before.is_empty() { field.clone() } else { field_name(&format!("{before}.{field}")) };
        if fields.contains(&field) || list.len() > MAX_LIST_FILES {
            let why = if fields.contains(&field) { LeftOutReason::FieldTwice } else { LeftOutReason::TooManyFrames };
            refuse(list, why);
            continue;
        }
        let mut kept: Vec<&NamedFrame<'_>> = Vec::with_capacity(list.len());
        for frame in *list {
            match kept.last() {
                Some(last) if last.name.compare_numbers(frame.name) == Ordering::Equal => {
                    refuse(std::slice::from_ref(frame), LeftOutReason::FrameTwice);
                }
                _ => kept.push(frame),
            }
        }
        note = note.or_else(|| note_of_gaps(files, &kept));
        found.extend(kept.into_iter().map(|frame| (frame.number, field.clone())));
        fields.push(field);
    }
    let record = ListedRecord { key_bytes: key.len(), files: found };
    (!record.files.is_empty()).then_some(ListedVideo { record, note })
}

/// Describes numbers that are missing among frames most of which are numbered one after the other.
fn note_of_gaps(files: &Listing, frames: &[&NamedFrame<'_>]) -> Option<String> {
    let numbers: Option<Vec<u64>> = frames.iter().map(|frame| frame.name.number.parse().ok()).collect();
    let numbers = numbers?;
    let gaps: Vec<usize> = (1..numbers.len()).filter(|nth| numbers[*nth] - numbers[nth - 1] != 1).collect();
    let first = gaps.first().filter(|_| gaps.len() * 2 < numbers.len())?;
    let missing: u64 = gaps.iter().map(|nth| numbers[*nth] - numbers[nth - 1] - 1).sum();
    let path = files.get(frames[*first].number).name;
    Some(format!(
        "numbers are missing among the frames in `{}`: {missing}, the first before `{path}`; frames are counted as they lie",
        folder_of(path)
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::records::by_folder, *};

    type Found = (Vec<(String, Vec<String>)>, Vec<(String, LeftOutReason)>, Option<String>);

    /// Groups the files of one folder: the fields with their frames, what is left out, and the note.
    fn found(names: &[&str]) -> Found {
        let mut files = Listing::default();
        names.iter().for_each(|name| files.push(&format!("a/v/{name}"), 1, None));
        files.sort_by(by_folder);
        let of_folder = folder(&files, 0);
        assert_eq!(of_folder, 0..names.len());
        let mut left_out = Vec::new();
        let video = video(&files, of_folder, |path, why| left_out.push((path["a/v/".len()..].to_owned(), why)));
        let Some(ListedVideo { record, note }) = video else { return (Vec::new(), left_out, None) };
        assert_eq!(record.key_bytes, "a/v".len());
        let mut fields: Vec<(String, Vec<String>)> = Vec::new();
        for (number, field) in record.files {
            let name = files.get(number).name["a/v/".len()..].to_owned();
            match fields.last_mut().filter(|(last, _)| *last == field) {
                Some((_, names)) => names.push(name),
                None => fields.push((field, vec![name])),
            }
        }
        (fields, left_out, note)
    }

    fn list(field: &str, names: &[&str]) -> (String, Vec<String>) {
        (field.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn frames_are_in_the_order_of_their_numbers_whatever_their_digits() {
        for names in [
            &["1.jpg", "2.JPG", "9.jpeg", "10.jpg", "100.jpg"][..],
            &["frame_000009.jpg", "frame_000010.jpg", "frame_0000100.jpg"],
            &["n008-2018__CAM_9.jpg", "n008-2018__CAM_1533151603512404.jpg"],
            &["1305031102.175304.jpg", "1305031102.211214.jpg", "1305031103.0.jpg"],
            &["shot.0009.jpg", "shot.0010.jpg"],
            &["9_rgb.jpg", "10_rgb.jpg"],
        ] {
            let (fields, left_out, _) = found(names);
            let field = if names[0].ends_with("_rgb.jpg") { "rgb.jpg" } else { "jpg" };
            assert_eq!((fields, left_out), (vec![list(field, names)], vec![]));
        }
    }

    #[test]
    fn pictures_of_other_names_are_fields_of_their_own_and_what_is_no_frame_is_left_out() {
        let (fields, left_out, note) = found(&[
            "img_2.jpg",
            "img_10.jpg",
            "flow_x_1.jpg",
            "flow_x_2.jpg",
            "2.png",
            "2.mask.png",
            "cover.jpg",
            "label.txt",
            "010.png",
        ]);
        let expected = [
            list("flow_x.jpg", &["flow_x_1.jpg", "flow_x_2.jpg"]),
            list("img.jpg", &["img_2.jpg", "img_10.jpg"]),
            list("mask.png", &["2.mask.png"]),
            list("png", &["2.png", "010.png"]),
        ];
        assert_eq!((&fields[..], note), (&expected[..], None));
        let others = ["cover.jpg", "label.txt"].map(|name| (name.to_owned(), LeftOutReason::NoFrame));
        assert_eq!(left_out, others);
    }

    #[test]
    fn numbers_that_are_there_twice_or_missing_are_named() {
        let (fields, left_out, note) =
            found(&["1.jpg", "02.jpg", "2.jpg", "3.jpg", "6.jpg", "7.jpg", "8.jpg", "10.jpg", "11.jpg"]);
        assert_eq!(fields, [list("jpg", &["1.jpg", "02.jpg", "3.jpg", "6.jpg", "7.jpg", "8.jpg", "10.jpg", "11.jpg"])]);
        assert_eq!(left_out, [("2.jpg".to_owned(), LeftOutReason::FrameTwice)]);
        let note = note.unwrap();
        assert!(
            note.contains("numbers are missing among the frames in `a/v`: 3, the first before `a/v/6.jpg`"),
            "{note}"
        );
        assert_eq!(found(&["10.jpg", "20.jpg", "30.jpg", "31.jpg"]).2, None, "times and the like");
    }

    #[test]
    fn pictures_of_many_names_are_no_video() {
        let names: Vec<String> = (0..17).map(|nth| format!("{}1.jpg", "x".repeat(nth))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (fields, left_out, _) = found(&names);
        assert!(fields.is_empty() && left_out.len() == 17);
        assert!(left_out.iter().all(|(_, why)| *why == LeftOutReason::ManyNames));
        assert_eq!(found(&names[..16]).0.len(), 16);
    }

    #[test]
    fn pictures_in_no_folder_are_no_video() {
        let mut files = Listing::default();
        files.push("1.jpg", 1, None);
        let mut left_out = Vec::new();
        assert!(video(&files, 0..1, |path, why| left_out.push((path.to_owned(), why))).is_none());
        assert_eq!(left_out, [("1.jpg".to_owned(), LeftOutReason::NoFrame)]);
    }

    proptest! {
        #[test]
        fn every_file_is_one_frame_or_left_out_once(
            names in proptest::collection::btree_set("([a.]?[0-2]{0,3}[._]?[0-1]{0,2}(\\.b)?\\.(jpg|JPEG|png|txt))", 1..30)
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (fields, left_out, _) = found(&names);
            let mut seen: Vec<String> = fields.iter().flat_map(|(_, names)| names.clone()).collect();
            seen.extend(left_out.into_iter().map(|(name, _)| name));
            seen.sort();
            prop_assert_eq!(seen, names);
            let mut known: Vec<&String> = fields.iter().map(|(field, _)| field).collect();
            known.sort();
            known.dedup();
            prop_assert_eq!(known.len(), fields.len());
        }
    }
}
