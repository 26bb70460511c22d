//! The checks of a file index, which are made when it is opened: all else relies on them.

use std::{collections::HashSet, ops::Range};

use super::index::{EtagForm, FieldKind, FileIndex, FileIndexExtras, u16_at};
use crate::{
    FormatError,
    envelope::{text, u32_at, wrong},
    format::{MAX_LIST_FILES, ShardIndex},
    manifest::is_relative_path,
};

/// The files of a record that are its own.
struct OwnFields {
    /// Where they begin in the shard.
    offset: u64,
    /// The numbers of their fields.
    fields: Range<u32>,
    has_list: bool,
}

/// The field of a record that has been checked so far, of which more files may follow.
#[derive(Default)]
struct ListSoFar {
    name: Option<u16>,
    files: usize,
    bytes: u64,
}

impl ListSoFar {
    /// Adds an entry, which `goes_on` with the field or is another one. Returns whether its files and bytes can be counted.
    fn add(&mut self, name: u16, bytes: u32, goes_on: bool) -> bool {
        let (files, before) = if goes_on { (self.files, self.bytes) } else { (0, 0) };
        *self = Self { name: Some(name), files: files + 1, bytes: before + u64::from(bytes) };
        self.files <= MAX_LIST_FILES && u32::try_from(self.bytes).is_ok()
    }
}

impl FileIndex {
    /// Checks all of it. Returns what it has that few have.
    pub(super) fn check(&self) -> Result<FileIndexExtras, FormatError> {
        self.check_names()?;
        self.check_fields()?;
        self.check_records()
    }

    fn check_names(&self) -> Result<(), FormatError> {
        let whole = &self.bytes[self.name_text..self.text];
        let whole = std::str::from_utf8(whole).map_err(|_| wrong("its names of fields are not UTF-8"))?;
        let (mut start, mut names) = (0, HashSet::new());
        for name in 0..self.names {
            let end = u32_at(&self.bytes, self.name_ends + 4 * name as usize) as usize;
            let name = whole.get(start..end).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| wrong("its table of names of fields is out of order"))?;
            if !names.insert(name) {
                return Err(wrong(&format!("it has the name `{name}` of a field twice")));
            }
            start = end;
        }
        if start == whole.len() { Ok(()) } else { Err(wrong("its table of names of fields has unused bytes")) }
    }

    /// Checks that every field has a known name and kind, and text that follows the text of the field before it: a path
    /// inside the folder, or a value.
    fn check_fields(&self) -> Result<(), FormatError> {
        let text_bytes = self.bytes.len() - self.text;
        let mut start = 0;
        for field in 0..self.fields {
            let entry = self.entry_bytes(field);
            let kind = FieldKind::of(u16_at(entry, 10));
            let kind = kind.ok_or_else(|| wrong(&format!("field {field} has an unknown kind")))?;
            let (bytes, end, name) = (u32_at(entry, 0), u32_at(entry, 4) as usize, u32::from(u16_at(entry, 8)));
            let path_end = end.checked_sub(kind.etag_bytes()).filter(|path_end| start <= *path_end);
            let Some(path_end) = path_end.filter(|_| end <= text_bytes && name < self.names) else {
                return Err(wrong(&format!("field {field} does not follow the field before it")));
            };
            let content = &self.bytes[self.text + start..self.text + path_end];
            if kind == FieldKind::PacketTable {
                if content.len() != bytes as usize {
                    return Err(wrong(&format!("the table of field {field} has another size than its text")));
                }
                start = end;
                continue;
            }
            let whole = std::str::from_utf8(content);
            let whole = whole.map_err(|_| wrong(&format!("the text of field {field} is not UTF-8")))?;
            match kind {
                FieldKind::Value | FieldKind::Key if whole.len() != bytes as usize => {
                    return Err(wrong(&format!("the value of field {field} has another size than its text")));
                }
                FieldKind::Shared if !whole.is_empty() => {
                    return Err(wrong(&format!("field {field} has both a file of its own and another one's")));
                }
                FieldKind::File(_) if whole.is_empty() || !is_relative_path(whole) => {
                    let path = whole.escape_debug();
                    return Err(wrong(&format!("`{path}` cannot be a file's place in the dataset's folder")));
                }
                FieldKind::File(EtagForm::Text(_))
                    if std::str::from_utf8(&self.bytes[self.text + path_end..self.text + end]).is_err() =>
                {
                    return Err(wrong(&format!("the etag of field {field} is not UTF-8")));
                }
                _ => {}
            }
            start = end;
        }
        if start == text_bytes { Ok(()) } else { Err(wrong("its text has unused bytes")) }
    }

    /// Checks that records follow each other without gaps, that each begins with a file, whose path begins with its key if it has
    /// none of its own, that values come after files, tables after values and a key after these, and that no record has a field twice but
    /// for files one after the other. Returns what it has that few have.
    fn check_records(&self) -> Result<FileIndexExtras, FormatError> {
        let (mut field, mut offset) = (0, 0);
        let mut seen_in = vec![u32::MAX; self.names as usize];
        // The last record with files of its own.
        let mut owner: Option<OwnFields> = None;
        let mut extras = FileIndexExtras::default();
        for number in 0..self.records {
            let [first_field, fields_end] = [self.first_field(number), self.first_field(number + 1)];
            let follows = first_field == field && fields_end > first_field && fields_end <= self.fields;
            if !follows {
                return Err(wrong(&format!("record {number} does not follow the one before it")));
            }
            let is_shared = self.entry(first_field).kind == FieldKind::Shared;
            let begins_at = owner.as_ref().filter(|_| is_shared).map_or(offset, |owner| owner.offset);
            if self.offset(number) != begins_at {
                return Err(wrong(&format!("record {number} does not follow the one before it")));
            }
            self.check_key(number, first_field, fields_end)?;
            let (mut has_value, mut has_table) = (false, false);
            let mut files = 0;
            let (mut list, mut has_list) = (ListSoFar::default(), false);
            for number_of_field in first_field..fields_end {
                let entry = self.entry(number_of_field);
                if entry.kind == FieldKind::Key {
                    if number_of_field + 1 < fields_end {
                        return Err(wrong(&format!("record {number} has a field behind its key")));
                    }
                    continue;
                }
                if entry.kind == FieldKind::PacketTable {
                    let file = u32_at(entry.etag, 0);
                    if is_shared || !(first_field..first_field + files).contains(&file) {
                        return Err(wrong(&format!("record {number} has a table of no file of its own")));
                    }
                    has_table = true;
                    continue;
                }
                if has_table {
                    return Err(wrong(&format!("record {number} has a field behind a table")));
                }
                if has_value && entry.kind.is_file() {
                    return Err(wrong(&format!("record {number} has a file behind a value")));
                }
                has_value = entry.kind == FieldKind::Value;
                let is_seen = std::mem::replace(&mut seen_in[usize::from(entry.name)], number) == number;
                if is_seen && !(entry.kind.is_file() && list.name == Some(entry.name)) {
                    return Err(wrong(&format!("record {number} has a field twice")));
                }
                has_list |= is_seen;
                if !list.add(entry.name, entry.bytes, is_seen) {
                    return Err(wrong(&format!("record {number} has a list of more files than a field can have")));
                }
                if entry.kind.is_file() {
                    if (entry.kind == FieldKind::Shared) != is_shared {
                        return Err(wrong(&format!("record {number} has files of its own and of another record")));
                    }
                    files += 1;
                }
                match entry.kind {
                    FieldKind::Shared => self.check_shared(number, number_of_field, first_field, owner.as_ref())?,
                    FieldKind::File(_) => offset += u64::from(entry.bytes),
                    FieldKind::Value | FieldKind::Key | FieldKind::PacketTable => {}
                }
            }
            extras.has_lists |= has_list;
            if is_shared && (has_list || owner.as_ref().is_some_and(|owner| owner.has_list)) {
                return Err(wrong(&format!("record {number} shares a list of files")));
            }
            extras.has_shared |= is_shared;
            extras.has_packet_tables |= has_table;
            if !is_shared {
                let fields = first_field..first_field + files;
                owner = Some(OwnFields { offset: begins_at, fields, has_list });
            }
            field = fields_end;
        }
        let is_whole = field == self.fields && offset == self.shard_bytes();
        if is_whole { Ok(extras) } else { Err(wrong("its files do not add up to the size of the shard")) }
    }

    /// Checks that a record begins with a file, and has a key.
    fn check_key(&self, record: u32, first_field: u32, fields_end: u32) -> Result<(), FormatError> {
        let (first, last) = (self.entry(first_field), self.entry(fields_end - 1));
        let key_bytes = u32_at(self.record_entry(record), 12) as usize;
        let is_key = match last.kind {
            FieldKind::Key => key_bytes == 0 && !last.text.is_empty(),
            _ => key_bytes > 0 && text(first.text).is_char_boundary(key_bytes) && key_bytes <= first.text.len(),
        };
        if first.kind.is_file() && is_key {
            return Ok(());
        }
        Err(wrong(&format!("record {record} does not begin with a file that has its key")))
    }

    /// Checks that a shared file of a record is one of `owner`, in its order, the first one first.
    fn check_shared(
        &self,
        record: u32,
        field: u32,
        first_field: u32,
        owner: Option<&OwnFields>,
    ) -> Result<(), FormatError> {
        let owned = self.owner_of(field);
        let is_next = match field.checked_sub(first_field) {
            Some(1..) => owned > self.owner_of(field - 1),
            _ => owner.is_some_and(|owner| owner.fields.start == owned),
        };
        let is_one = owner.is_some_and(|owner| owner.fields.contains(&owned));
        if is_next && is_one && u32_at(self.entry_bytes(owned), 0) == u32_at(self.entry_bytes(field), 0) {
            return Ok(());
        }
        Err(wrong(&format!("record {record} shares a file that the record before it does not have")))
    }
}
