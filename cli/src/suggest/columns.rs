//! The columns of a suggested job, as the text of a job file: one for each field that all records have and a column can read.

use spdl_dataset::LABEL_FIELD;
use spdl_shard::{format::token_index::LOSS, manifest::TokenizerFacts};

use super::{
    JobPurpose,
    facts::{FieldFacts, RecordFacts},
    packing::{SeenTokens, is_tokens, tokens_alone},
    quoted,
};
use crate::kind::{ValueKind, dtype_of};

/// The side of the pictures on a sheet, which shows them whole.
const SHEET_SIDE: u32 = 192;
/// The side to which pictures are resized before a validation cuts out their middle, as a share of the crop: 256 of 224.
const RESIZED: f64 = 256.0 / 224.0;
/// What columns of bytes and text hold by default, in bytes.
const DEFAULT_BYTES: u64 = 1 << 20;
/// What columns of sounds hold by default, in seconds.
const DEFAULT_SECONDS: u64 = 60;
/// What a sample may have of boxes.
const BOXES: u32 = 100;
/// The most ids that a column of tokens holds by default.
const DEFAULT_TOKENS: u64 = spdl_job::DEFAULT_TOKENS as u64;
/// The fields that say where a sound begins in a recording, and how long it is, as lists of segments have them.
const STARTS: [&str; 2] = ["offset", "start"];
const SECONDS: &str = "duration";
/// Words of fields that hold the class of each pixel.
const MASKS: [&str; 6] = ["mask", "masks", "seg", "segmentation", "semantic", "labelmap"];

/// The columns.
pub(super) struct SuggestedColumns<'f> {
    facts: &'f RecordFacts,
    purpose: JobPurpose,
    size: u32,
    /// Width and height of all pictures, if they keep these.
    kept: Option<[u64; 2]>,
    pub(super) text: String,
    names: Vec<String>,
    pub(super) left_out: Vec<(String, String)>,
    /// The documents that are packed, if samples are sequences.
    pub(super) packed: Option<SeenTokens>,
    tokenizer: Option<TokenizerFacts>,
}

impl<'f> SuggestedColumns<'f> {
    /// Suggests columns for the fields of these records, with pictures of `size` pixels on a side, or of the one smaller size that those of
    /// `sized` have.
    pub(super) fn of(
        facts: &'f RecordFacts,
        purpose: JobPurpose,
        size: u32,
        sized: &RecordFacts,
        tokenizer: Option<TokenizerFacts>,
    ) -> Self {
        let (kept, text) = (kept_size(sized, size), String::new());
        let (names, left_out) = (Vec::new(), Vec::new());
        let mut columns = Self { facts, purpose, size, kept, text, names, left_out, packed: None, tokenizer };
        if let Some((name, field)) = tokens_alone(facts, tokenizer.is_some()).filter(|_| purpose != JobPurpose::Sheet) {
            columns.packed(name, field);
            return columns;
        }
        let mut done = columns.of_several("image", FieldFacts::is_picture);
        done.extend(columns.of_several("wave", FieldFacts::is_sound));
        done.extend(columns.of_several("video", |field| field.is_video() || field.is_frames()));
        // Masks and boxes follow a picture.
        for (name, field) in facts.fields.iter().filter(|(name, field)| field.is_picture() && !is_mask(name, field)) {
            if !done.contains(&name.as_str()) {
                columns.field(name, field);
                done.push(name);
            }
        }
        for (name, field) in facts.fields.iter().filter(|(name, _)| !done.contains(&name.as_str())) {
            columns.field(name, field);
        }
        columns
    }

    /// Returns the number of columns.
    pub(super) const fn len(&self) -> usize {
        self.names.len()
    }

    /// Adds the columns of sequences that documents are packed into.
    fn packed(&mut self, name: &str, field: &FieldFacts) {
        // A number for each token, in each record.
        let is_loss = |loss: &FieldFacts| loss.records == self.facts.records && loss.sides() == field.sides();
        let has_loss = self.facts.fields.get(LOSS).is_some_and(is_loss);
        let tokens = SeenTokens::of(field, has_loss);
        let seen =
            tokens.largest.map_or_else(String::new, |largest| format!("; the largest id that was seen is {largest}"));
        let vocab = match self.tokenizer {
            Some(TokenizerFacts { vocab, .. }) => {
                format!("vocab = {vocab:<14} # of the tokenizer: no other id reaches the model")
            }
            None => format!("# vocab = SIZE         # of your tokenizer: no other id reaches the model then{seen}"),
        };
        self.push("tokens", name, &format!("tokens\"\n{vocab}"));
        for kind in ["labels", "positions", "document_lengths"] {
            let column = format!("\n[[column]]\nname = \"{kind}\"\ndecode = \"{kind}\"\nfollows = \"tokens\"\n");
            self.text.push_str(&column);
            if kind == "labels" && has_loss {
                self.text
                    .push_str("loss_from = \"loss\"      # which tokens are learned; the others have label -100\n");
            }
            self.names.push(kind.to_owned());
        }
        let is_used = |field: &str| field == name || field == LOSS && has_loss;
        for other in self.facts.fields.keys().filter(|other| !is_used(other)) {
            self.left_out
                .push((other.clone(), "documents are packed, and only their tokens are in sequences".to_owned()));
        }
        self.packed = Some(tokens);
    }

    /// Adds a column for fields of pictures, sounds or videos, of which each record has one, as some JPEGs and some PNGs; returns
    /// these fields.
    fn of_several(&mut self, column: &'static str, is_one_of: impl Fn(&FieldFacts) -> bool) -> Vec<&'f str> {
        let fields = || self.facts.fields.iter().filter(|(_, field)| is_one_of(field));
        let is_one = fields().all(|(_, field)| field.records < self.facts.records)
            && fields().map(|(_, field)| field.records).sum::<u64>() == self.facts.records;
        let names: Vec<&str> = fields().filter(|_| is_one).map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            let decode = match column {
                "image" => format!("image\"\nops = [{}]", self.ops()),
                "video" => self.of_videos(),
                _ => of_sounds(fields().map(|(_, field)| field), self.span()),
            };
            self.push(column, &names.join("|"), &decode);
        }
        names
    }

    /// Adds a column for a field, or says why there is none.
    fn field(&mut self, name: &str, field: &FieldFacts) {
        let column = match (&field.problem, field.records == self.facts.records) {
            (Some(problem), _) => Err(problem.clone()),
            (None, false) => Err(format!(
                "only in {} of {} records, and a sample without it is a bad one",
                field.records, self.facts.records
            )),
            (None, true) => self.decode(name, field),
        };
        match column {
            Ok((column, decode)) => {
                self.push(column.unwrap_or(if name == LABEL_FIELD { "label" } else { name }), name, &decode);
                if column == Some("boxes") && self.facts.has_classes {
                    self.push("labels", name, "box_labels\"\nfollows = \"boxes\"");
                }
            }
            Err(problem) => {
                let line = format!("\n# `{}`: {problem}\n", name.escape_debug());
                self.text.push_str(&line);
                self.left_out.push((name.to_owned(), problem));
            }
        }
    }

    /// Returns how a field is decoded, from within the quotation marks on, and the name of its column if that is another one.
    fn decode(&self, name: &str, field: &FieldFacts) -> Result<(Option<&'static str>, String), String> {
        if field.is_picture() {
            if is_mask(name, field) && self.has_image() {
                return Ok((self.free("mask"), "mask\"\nfollows = \"image\"".to_owned()));
            }
            return Ok((self.free("image"), format!("image\"\nops = [{}]", self.ops())));
        }
        if field.is_sound() {
            return Ok((self.free("wave"), of_sounds([field], self.span())));
        }
        if field.is_video() || field.is_frames() {
            return Ok((self.free("video"), self.of_videos()));
        }
        let Some(kind) = field.kind() else {
            let is_number = field.kinds.keys().all(|kind| matches!(kind, ValueKind::WholeNumber | ValueKind::Number));
            let is_text = field.kinds.keys().all(|kind| {
                matches!(kind, ValueKind::WholeNumber | ValueKind::Number | ValueKind::Text | ValueKind::Json)
            });
            return Ok((
                None,
                if is_number { "float\"".to_owned() } else { of_bytes(if is_text { "text" } else { "bytes" }, field) },
            ));
        };
        let decode = match kind {
            ValueKind::WholeNumber => "int\"".to_owned(),
            ValueKind::Number => "float\"".to_owned(),
            ValueKind::Array("bool", 0) => "bool\"".to_owned(),
            ValueKind::Array(dtype, 0) if dtype.starts_with(['i', 'u']) => "int\"".to_owned(),
            ValueKind::Array(dtype, 0) => format!("float\"\ndtype = \"{dtype}\""),
            ValueKind::Array(dtype, _) => of_array(name, dtype, field)?,
            ValueKind::Npy(descr, _) => {
                let dtype = dtype_of(descr).ok_or_else(|| format!("no column has elements of type `{descr}`"))?;
                of_array(name, dtype, field)?
            }
            ValueKind::Voc if self.free("boxes").is_some() && self.has_image() => {
                return Ok((
                    Some("boxes"),
                    format!("boxes\"\nfollows = \"image\"\nstored_as = \"voc\"\nmax_rows = {BOXES}"),
                ));
            }
            ValueKind::Json => match &field.number_path {
                Some(path) => format!("json\"\npath = {}", quoted(path)),
                None => of_bytes("text", field),
            },
            // The whole of each frame, and nothing that swaps left and right: an action would no longer be of it.
            ValueKind::Frame => format!("video\"\nops = [{{ letterbox = {{ size = {} }} }}]", self.size),
            ValueKind::Text if field.are_classes => "category\"".to_owned(),
            ValueKind::Text | ValueKind::Voc => of_bytes("text", field),
            ValueKind::Other(_) => of_bytes("bytes", field),
            ValueKind::Picture(_)
            | ValueKind::Sound(_)
            | ValueKind::Video(_)
            | ValueKind::Empty
            | ValueKind::Wrong
            | ValueKind::List(_) => {
                return Err(format!("{} in each record, for which there is no suggestion", kind.text()));
            }
        };
        Ok((None, decode))
    }

    /// Returns a column of clips of videos.
    fn of_videos(&self) -> String {
        let pick = if self.purpose == JobPurpose::Training { "" } else { ", pick = \"middle\"" };
        format!("video\"\nclip = {{ frames = 16, stride = 4{pick} }}\nops = [{}]", self.ops())
    }

    /// Returns the fields that say which part of a recording the sound of a record is, as a column has them, if there are such.
    fn span(&self) -> Option<String> {
        let is_number = |name: &&str| {
            let kinds = self.facts.fields.get(*name).map(|field| &field.kinds);
            kinds.is_some_and(|kinds| {
                kinds.keys().all(|kind| matches!(kind, ValueKind::WholeNumber | ValueKind::Number))
            })
        };
        let start = STARTS.into_iter().find(is_number)?;
        let seconds = Some(SECONDS).filter(is_number).map(|seconds| format!(", seconds = {}", quoted(seconds)));
        Some(format!("{{ start = {}{} }}", quoted(start), seconds.unwrap_or_default()))
    }

    /// Returns the operations on pictures.
    fn ops(&self) -> String {
        let size = self.size;
        let has_boxes = || self.facts.fields.values().any(|field| matches!(field.kind(), Some(ValueKind::Voc)));
        let kept = self.kept.map(|[width, height]| format!("{{ resize = [{height}, {width}] }}"));
        match (self.purpose, kept) {
            (JobPurpose::Sheet, _) => format!("{{ letterbox = {{ size = {SHEET_SIDE} }} }}"),
            (JobPurpose::Training, Some(kept)) => format!("{kept}, \"random_flip\""),
            (JobPurpose::Training, None) => format!("{{ random_resized_crop = {size} }}, \"random_flip\""),
            (JobPurpose::Validation, Some(kept)) => kept,
            // A crop would cut off boxes.
            (JobPurpose::Validation, None) if has_boxes() => format!("{{ letterbox = {{ size = {size} }} }}"),
            (JobPurpose::Validation, None) => {
                let resized = (f64::from(size) * RESIZED).round();
                format!("{{ resize = {resized} }}, {{ center_crop = {size} }}")
            }
        }
    }

    fn has_image(&self) -> bool {
        self.free("image").is_none()
    }

    /// Returns the name if no column has it.
    fn free(&self, name: &'static str) -> Option<&'static str> {
        (!self.names.iter().any(|other| other == name)).then_some(name)
    }

    fn push(&mut self, name: &str, from: &str, decode: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        while self.names.contains(&name) {
            name.push('_');
        }
        let column = format!("\n[[column]]\nname = {}\nfrom = {}\ndecode = \"{decode}\n", quoted(&name), quoted(from));
        self.text.push_str(&column);
        self.names.push(name);
    }
}

/// Returns width and height of all pictures but masks, if these are the same and no longer than `size`.
fn kept_size(facts: &RecordFacts, size: u32) -> Option<[u64; 2]> {
    let pictures = facts.fields.iter().filter(|(name, field)| field.is_picture() && !is_mask(name, field));
    let mut sides = pictures.map(|(_, field)| match field.sides() {
        Some([shortest, longest]) if shortest == longest => <[u64; 2]>::try_from(shortest.as_slice()).ok(),
        _ => None,
    });
    let first = sides.next()??;
    (sides.all(|other| other == Some(first)) && first.iter().all(|side| *side <= size.into())).then_some(first)
}

/// Returns whether a field is called, and looks, as those do that hold the class of each pixel.
fn is_mask(name: &str, field: &FieldFacts) -> bool {
    field.have_one_channel
        && name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| MASKS.contains(&word.to_ascii_lowercase().as_str()))
}

/// Returns a column of sounds at the lowest rate that was seen, which holds all of them and some longer ones; with a `span`, only that
/// part of each is held.
fn of_sounds<'f>(fields: impl IntoIterator<Item = &'f FieldFacts>, span: Option<String>) -> String {
    let sides: Vec<&[Vec<u64>; 2]> = fields.into_iter().filter_map(FieldFacts::sides).collect();
    let lowest = sides.iter().filter_map(|[least, _]| least.first()).min().copied().unwrap_or(1).max(1);
    let seconds = |[_, most]: &&[Vec<u64>; 2]| most.get(2).map_or(0, |frames| frames.div_ceil(lowest));
    let longest = sides.iter().map(seconds).max().unwrap_or(0);
    let mut column = format!("audio\"\nrate = {lowest:<16} # Hz; files of another rate are resampled");
    if let Some(span) = span {
        column.push_str(&format!("\nspan = {span}"));
    } else if longest > DEFAULT_SECONDS {
        column.push_str(&format!("\nmax_seconds = {}", longest.next_power_of_two()));
    }
    column
}

/// Returns a column of bytes that holds all values that were seen, and some longer ones.
fn of_bytes(decode: &str, field: &FieldFacts) -> String {
    match field.sizes() {
        Some([.., largest]) if largest > DEFAULT_BYTES => {
            format!("{decode}\"\nmax_bytes = {}", largest.next_power_of_two().min(1 << 30))
        }
        _ => format!("{decode}\""),
    }
}

/// Returns a column of tokens for fields that are called, and look, as those of ids do; otherwise one of arrays of one shape, or of any number
/// of rows of one.
fn of_array(name: &str, dtype: &str, field: &FieldFacts) -> Result<String, String> {
    let [shortest, longest] = field.sides().ok_or("arrays of several numbers of sides")?;
    if is_tokens(name, field, false) {
        return Ok(match longest[0] {
            0..=DEFAULT_TOKENS => "tokens\"".to_owned(),
            most => format!("tokens\"\nmax_rows = {}", most.next_power_of_two()),
        });
    }
    if shortest == longest {
        return Ok(format!("tensor\"\ndtype = \"{dtype}\"\nshape = {shortest:?}"));
    }
    if shortest[1..] == longest[1..] {
        let rows = longest[0].max(1).next_power_of_two();
        return Ok(format!("tensor\"\ndtype = \"{dtype}\"\nshape = {:?}\nmax_rows = {rows}", &shortest[1..]));
    }
    Err(format!("arrays of shapes from {shortest:?} to {longest:?}, and only the first side of a column's may differ"))
}
