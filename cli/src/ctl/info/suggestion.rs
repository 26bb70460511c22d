//! A job that reads what the records have: a beginning for a job file.

use super::facts::{FieldFacts, RecordFacts};
use crate::kind::{ValueKind, dtype_of};

/// The side of the crop that is suggested for pictures of several sizes.
const CROP: u32 = 224;
/// The side of the pictures on a sheet, which shows them whole.
const SHEET_SIDE: u32 = 192;
/// What columns of bytes and text hold by default, in bytes.
const DEFAULT_BYTES: u64 = 1 << 20;
/// What a sample may have of boxes.
const BOXES: u32 = 100;

/// What the job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPurpose {
    Training,
    Sheet,
}

/// Returns the text of a job file whose batches have `batch` samples.
pub(super) fn job(url: &str, batch: u64, facts: &RecordFacts, purpose: JobPurpose) -> String {
    let mut columns = SuggestedColumns { facts, purpose, text: String::new(), names: Vec::new() };
    let pictures = columns.pictures();
    let rest = facts.fields.iter().filter(|(name, _)| !pictures.contains(&name.as_str()));
    for (name, field) in rest {
        columns.field(name, field);
    }
    format!("name = \"first\"\ndataset = {}\nglobal_batch = {batch}\n{}", quoted(url), columns.text)
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The columns so far.
struct SuggestedColumns<'f> {
    facts: &'f RecordFacts,
    purpose: JobPurpose,
    text: String,
    names: Vec<String>,
}

impl<'f> SuggestedColumns<'f> {
    /// Adds a column for fields of pictures of which each record has one, as some JPEGs and some PNGs; returns these fields.
    fn pictures(&mut self) -> Vec<&'f str> {
        let is_picture = |field: &FieldFacts| matches!(field.kind(), Some(ValueKind::Picture(_)));
        let fields = || self.facts.fields.iter().filter(|(_, field)| is_picture(field));
        let is_one = fields().all(|(_, field)| field.records < self.facts.records)
            && fields().map(|(_, field)| field.records).sum::<u64>() == self.facts.records;
        let names: Vec<&str> = fields().filter(|_| is_one).map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            self.push("image", &names.join("|"), &format!("image\"\nops = [{}]", self.ops(None)));
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
            (None, true) => self.decode(field),
        };
        match column {
            Ok((column, decode)) => {
                self.push(column.unwrap_or(if name == "cls" { "label" } else { name }), name, &decode);
                if column == Some("boxes") && self.facts.has_classes {
                    self.push("labels", name, "box_labels\"\nfollows = \"boxes\"");
                }
            }
            Err(problem) => {
                let line = format!("\n# `{}`: {problem}\n", name.escape_debug());
                self.text.push_str(&line);
            }
        }
    }

    /// Returns how a field is decoded, from within the quotation marks on, and the name of its column if that is another one.
    fn decode(&self, field: &FieldFacts) -> Result<(Option<&'static str>, String), String> {
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
            ValueKind::Picture(_) => {
                return Ok((self.free("image"), format!("image\"\nops = [{}]", self.ops(field.sides()))));
            }
            ValueKind::WholeNumber => "int\"".to_owned(),
            ValueKind::Number => "float\"".to_owned(),
            ValueKind::Array("bool", 0) => "bool\"".to_owned(),
            ValueKind::Array(dtype, 0) if dtype.starts_with(['i', 'u']) => "int\"".to_owned(),
            ValueKind::Array(dtype, 0) => format!("float\"\ndtype = \"{dtype}\""),
            ValueKind::Array(dtype, _) => of_array(dtype, field)?,
            ValueKind::Npy(descr, _) => {
                of_array(dtype_of(descr).ok_or_else(|| format!("no column has elements of type `{descr}`"))?, field)?
            }
            ValueKind::Voc if self.free("boxes").is_some() && self.names.iter().any(|name| name == "image") => {
                return Ok((
                    Some("boxes"),
                    format!("boxes\"\nfollows = \"image\"\nstored_as = \"voc\"\nmax_rows = {BOXES}"),
                ));
            }
            ValueKind::Json => match &field.number_path {
                Some(path) => format!("json\"\npath = {}", quoted(path)),
                None => of_bytes("text", field),
            },
            ValueKind::Text if field.are_classes => "category\"".to_owned(),
            ValueKind::Text | ValueKind::Voc => of_bytes("text", field),
            ValueKind::Other(_) => of_bytes("bytes", field),
            ValueKind::Empty | ValueKind::Wrong | ValueKind::List(_) => {
                return Err(format!("{} in each record, for which there is no suggestion", kind.text()));
            }
        };
        Ok((None, decode))
    }

    /// Returns the operations on pictures whose sides are between these.
    fn ops(&self, sides: Option<&[Vec<u64>; 2]>) -> String {
        match sides {
            _ if self.purpose == JobPurpose::Sheet => format!("{{ letterbox = {{ size = {SHEET_SIDE} }} }}"),
            Some([shortest, longest]) if shortest == longest => {
                format!("{{ resize = [{}, {}] }}", shortest[1], shortest[0])
            }
            _ => format!("{{ random_resized_crop = {CROP} }}"),
        }
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

/// Returns a column of bytes that holds all values that were seen, and some longer ones.
fn of_bytes(decode: &str, field: &FieldFacts) -> String {
    match field.sizes() {
        Some([.., largest]) if largest > DEFAULT_BYTES => {
            format!("{decode}\"\nmax_bytes = {}", largest.next_power_of_two().min(1 << 30))
        }
        _ => format!("{decode}\""),
    }
}

/// Returns a column of arrays of one shape, or of any number of rows of one.
fn of_array(dtype: &str, field: &FieldFacts) -> Result<String, String> {
    let [shortest, longest] = field.sides().ok_or("arrays of several numbers of sides")?;
    if shortest == longest {
        return Ok(format!("tensor\"\ndtype = \"{dtype}\"\nshape = {shortest:?}"));
    }
    if shortest[1..] == longest[1..] {
        let rows = longest[0].max(1).next_power_of_two();
        return Ok(format!("tensor\"\ndtype = \"{dtype}\"\nshape = {:?}\nmax_rows = {rows}", &shortest[1..]));
    }
    Err(format!("arrays of shapes from {shortest:?} to {longest:?}, and only the first side of a column's may differ"))
}
