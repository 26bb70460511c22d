//! Pictures that are fields of a record, and may be meant as records of their own: `cat.0.jpg`, `cat.1.jpg` and so on in a tar.

use super::{
    DatasetError, is_picture,
    scan::{DatasetOddities, DottedRecord},
};
use crate::tar::{ScannedRecord, TarAnomaly};

/// Up to this many views of one thing are not odd, however few things there are.
const MAX_VIEWS: usize = 8;

/// Returns a record if it has a picture whose field has a dot in its name.
pub(super) fn dotted(shard: &str, record: &ScannedRecord) -> Option<DottedRecord> {
    let has_one = record.fields.iter().any(|field| is_dotted(&field.name));
    has_one.then(|| DottedRecord { shard: shard.to_owned(), key: record.key.clone() })
}

/// Returns whether a field is a picture with a dot in its name.
fn is_dotted(field: &str) -> bool {
    field.contains('.') && is_picture(field)
}

/// Checks the pictures with a dot in the names of their fields, in a dataset of `records` records. Refuses the dataset
/// if there are more of these names than keys, and adds a note if several of them begin with a number.
pub(super) fn check(url: &str, records: u64, odd: &mut DatasetOddities) -> Result<(), DatasetError> {
    let Some(DottedRecord { shard, key }) = odd.dotted.take() else { return Ok(()) };
    let names: Vec<&str> = odd.fields.keys().map(String::as_str).filter(|name| is_dotted(name)).collect();
    // Parts of records, and records that come again, have no keys of their own.
    let repeated = odd.members.count(TarAnomaly::Torn) + odd.members.count(TarAnomaly::KeyTwice);
    let keys = usize::try_from(records.saturating_sub(repeated)).unwrap_or(usize::MAX);
    let (count, first) = (names.len(), names.first().copied().unwrap_or_default());
    let found = format!(
        "pictures with {count} names such as `{first}` are fields of one record, such as `{key}` in shard `{shard}`, as keys end at \
         the first dot of a file's name"
    );
    if count > keys.max(MAX_VIEWS) {
        return Err(DatasetError::DottedKeys { url: url.to_owned(), found });
    }
    let number =
        |name: &&str| name.split('.').next().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    if names.iter().filter(|name| number(name)).count() > 1 {
        odd.note(|| {
            format!("{found}; `--key-ends-at last-dot` makes a record of each, `first-dot` says that it is right so")
        });
    }
    Ok(())
}
