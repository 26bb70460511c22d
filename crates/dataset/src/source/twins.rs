//! Gives records with equal keys different ones: the first record of the source keeps its key, and the others get a
//! number.
//!
//! A numbered key can be the key of another record, but only of one of its family: the keys that are the same without
//! the numbers at their ends. So keys are sorted by family, and only a family that has a key twice is in memory.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use spdl_store::{TemporaryError, TemporaryFolder};
use spdl_types::Fingerprint;

use super::{DatasetError, SORT_BYTES, SourceRecord, wrong};
use crate::sorter::{Sorted, SortedItem, Sorter};

/// Upper limit of the records of a family in which a key occurs twice.
const MAX_FAMILY: usize = 1 << 20;

/// The key of a record, as it is sorted, and the record's number.
struct FamilyMember {
    number: u32,
    /// The key without the numbers at its end.
    family: Vec<u8>,
    numbers: Vec<u8>,
}

/// Returns the records that are not the first with their key: their numbers as keys, in ascending order, and what
/// distinguishes them as payloads.
pub(super) fn distinguish(records: &Arc<Sorted>, folder: &TemporaryFolder) -> Result<Arc<Sorted>, DatasetError> {
    let mut keys = Sorter::new(folder, SORT_BYTES);
    for (number, item) in (0_u32..).zip(records.iter()?) {
        FamilyMember::of(number, &SourceRecord::of_payload(&item?.payload).key()).add_to(&mut keys)?;
    }
    let keys = keys.finish()?;
    let mut twins = Sorter::new(folder, SORT_BYTES);
    let (mut ahead, mut behind) = (keys.iter()?.map(member).peekable(), keys.iter()?.map(member));
    let mut passed = 0;
    while let Some(first) = ahead.next().transpose()? {
        let (mut members, mut has_twins, mut last) = (1, false, first);
        while let Some(next) = ahead.next_if(|next| next.as_ref().is_ok_and(|next| next.family == last.family)) {
            let next = next?;
            has_twins |= next.numbers == last.numbers;
            (last, members) = (next, members + 1);
        }
        if !has_twins {
            passed += members;
            continue;
        }
        if members > MAX_FAMILY {
            return Err(too_many(members, &last.key()));
        }
        if passed > 0 {
            behind.nth(std::mem::take(&mut passed) - 1).transpose()?;
        }
        let family = behind.by_ref().take(members).collect::<Result<Vec<_>, _>>()?;
        for (number, twin) in distinguish_family(family) {
            twins.push(&number.to_be_bytes(), &twin.to_le_bytes())?;
        }
    }
    Ok(twins.finish()?)
}

/// Returns what distinguishes the members of a family that do not keep their keys.
fn distinguish_family(mut family: Vec<FamilyMember>) -> Vec<(u32, u32)> {
    family.sort_unstable_by_key(|member| member.number);
    let mut taken = HashSet::with_capacity(family.len());
    // All smaller ones are taken.
    let mut next: HashMap<Fingerprint, u32> = HashMap::new();
    let mut twins = Vec::new();
    for member in family {
        let key = member.key();
        let next = next.entry(Fingerprint::of(key.as_bytes())).or_insert(0);
        while !taken.insert(Fingerprint::of(numbered(&key, *next).as_bytes())) {
            *next += 1;
        }
        if *next > 0 {
            twins.push((member.number, *next));
        }
    }
    twins
}

/// Returns the key of a record that is distinguished by `twin`.
pub(super) fn numbered(key: &str, twin: u32) -> String {
    if twin == 0 { key.to_owned() } else { format!("{key}~{twin}") }
}

fn member(item: Result<SortedItem, TemporaryError>) -> Result<FamilyMember, TemporaryError> {
    item.map(|SortedItem { key, payload }| {
        let end = key.iter().position(|byte| *byte == 0).expect("a family ends with a zero byte");
        let number = u32::from_le_bytes(*payload.first_chunk().expect("4 bytes"));
        FamilyMember { number, family: key[..end].to_vec(), numbers: key[end + 1..].to_vec() }
    })
}

fn too_many(members: usize, key: &str) -> DatasetError {
    let problem = format!(
        "is the key of one of {members} records whose names are the same but for a number that `~` precedes, and some of them \
         are the same: rename the files, or list each of them once"
    );
    wrong(std::path::Path::new(key), &problem)
}

impl FamilyMember {
    fn of(number: u32, key: &str) -> Self {
        let mut family = key;
        while let Some((before, last)) = family.rsplit_once('~')
            && !last.starts_with('0')
            && !last.is_empty()
            && last.bytes().all(|byte| byte.is_ascii_digit())
        {
            family = before;
        }
        let (family, numbers) = key.as_bytes().split_at(family.len());
        Self { number, family: family.to_vec(), numbers: numbers.to_vec() }
    }

    fn add_to(&self, keys: &mut Sorter) -> Result<(), TemporaryError> {
        keys.push(&[&self.family[..], &[0], &self.numbers].concat(), &self.number.to_le_bytes())
    }

    fn key(&self) -> String {
        String::from_utf8([&self.family[..], &self.numbers].concat()).expect("keys are text")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Distinguishes keys as a program would that holds all of them.
    fn expected(keys: &[String]) -> Vec<(u32, u32)> {
        let mut taken = HashSet::new();
        let mut twins = Vec::new();
        for (number, key) in (0..).zip(keys) {
            let twin = (0..).find(|twin| taken.insert(numbered(key, *twin))).unwrap();
            twins.extend((twin > 0).then_some((number, twin)));
        }
        twins
    }

    proptest! {
        #[test]
        fn keys_are_distinguished_in_the_order_of_the_source(
            keys in proptest::collection::vec("[ab]{0,1}x(~(1|2|01|))?(~1)?", 0..40),
        ) {
            let folder = TemporaryFolder::new(std::env::temp_dir());
            let mut records = Sorter::new(&folder, 1 << 10);
            for (number, key) in (0_u32..).zip(&keys) {
                let path = format!("{key}.jpg");
                let record = SourceRecord { files: path.into(), sizes: [].into(), stem_bytes: key.len() as u32, twin: 0, label: None };
                records.push(&number.to_be_bytes(), &record.payload()).unwrap();
            }
            let twins = distinguish(&records.finish().unwrap(), &folder).unwrap();
            let found: Vec<(u32, u32)> = twins
                .iter()
                .unwrap()
                .map(|item| item.unwrap())
                .map(|item| {
                    let number = u32::from_be_bytes(*item.key.first_chunk().unwrap());
                    (number, u32::from_le_bytes(*item.payload.first_chunk().unwrap()))
                })
                .collect();
            prop_assert_eq!(found, expected(&keys));
        }
    }
}
