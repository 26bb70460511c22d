//! Makes one manifest of the parts of a pack, without reading their shards.

use spdl_shard::{
    index::is_index,
    manifest::{MANIFEST_NAME, Manifest, ManifestBuilder, MetadataPlace, in_metadata_folder},
    store::DatasetStore,
};

use super::{
    super::{
        ClassOrder, DatasetError, DatasetReport,
        folder::{in_use, is_shard_name},
        listing::Listing,
        replace::{NotCommitted, end_parts, existing_manifest, has_parts_begun, manifest_name, switch},
        report::DatasetTally,
    },
    PackPart,
    files::PartManifest,
};

/// Number of parts that an error names.
const NAMED: usize = 10;

/// Makes the dataset whose parts [`pack_part`](super::pack_part) has packed: checks that all of them are there and agree,
/// writes the manifest, and removes what the parts left besides shards. No shard is read; their sizes and etags are
/// compared. If it is killed, another call completes it.
///
/// # Errors
/// [`DatasetError::Parts`] if there are no parts, one is missing, or they do not agree; and if the store cannot be read or
/// written.
pub async fn merge(to: &DatasetStore) -> Result<DatasetReport, DatasetError> {
    let wrong = |problem: String| DatasetError::Parts { url: to.url().to_owned(), problem };
    let is_of_shard = |name: &str| is_shard_name(name) || in_metadata_folder(name).is_some_and(is_index);
    let folder = Listing::of(to, |name| is_of_shard(name) || PackPart::of_file(name).is_some()).await?;
    let parts: Vec<PackPart> = folder.iter().filter_map(|object| PackPart::of_file(object.name)).collect();
    let manifest = match existing_manifest(to).await? {
        Some(_) => Some(to.manifest().await?),
        None => None,
    };
    let missing = missing(&parts).map_err(wrong);
    if let (Some(manifest), Err(_)) = (&manifest, &missing) {
        // The parts are removed after the manifest is written.
        if !has_parts_begun(to).await? {
            return in_use(to, &manifest.place().path(MANIFEST_NAME));
        }
        end_parts(to).await?;
        let bytes = manifest.shards().map(|shard| shard.bytes).sum();
        return Ok(DatasetTally { bytes, ..DatasetTally::default() }.report(to.url(), manifest));
    }
    missing?;

    let mut merging = Merging { to, folder: &folder, first: None, tally: DatasetTally::default() };
    let mut builder = None;
    let count = parts[0].count;
    for number in 0..count {
        let part = PartManifest::read(to, PackPart { number, count }).await?;
        let builder = builder.get_or_insert_with(|| ManifestBuilder::new(&part.name));
        merging.add(part, builder)?;
    }
    let (builder, first) = (builder.expect("there is a part"), merging.first.expect("there is a part"));
    let classes = merging.tally.classes(first.classes, &ClassOrder::ByName)?;
    let unwritable = |source| DatasetError::Unwritable { url: to.url_of(&manifest_name()), source };
    let merged = builder.classes(classes).finish().map_err(unwritable)?;
    commit(to, manifest, &merged).await?;
    Ok(merging.tally.report(to.url(), &merged))
}

/// Writes the manifest unless it is there already, and removes what the parts left.
async fn commit(to: &DatasetStore, found: Option<Manifest>, merged: &Manifest) -> Result<(), DatasetError> {
    match found {
        Some(found) if found.bytes() != merged.bytes() => return in_use(to, &found.place().path(MANIFEST_NAME)),
        Some(_) => {}
        None => switch(to, merged).await.map_err(|NotCommitted { error, .. }| error)?,
    }
    end_parts(to).await
}

/// Checks that there are all parts of one pack. Returns in words what is missing.
fn missing(parts: &[PackPart]) -> Result<(), String> {
    let Some(first) = parts.first() else {
        return Err("has no part of a pack; `spdl-ctl pack SOURCE OUT --part I/N` packs one".to_owned());
    };
    if let Some(other) = parts.iter().find(|part| part.count != first.count) {
        let (one, other) = (first.file_name(), other.file_name());
        return Err(format!("has parts of two packs: `{one}` and `{other}`; remove those of one"));
    }
    let mut there: Vec<u32> = parts.iter().map(|part| part.number).collect();
    there.sort_unstable();
    let missing: Vec<u32> = (0..first.count).filter(|number| there.binary_search(number).is_err()).collect();
    let Some(next) = missing.first() else { return Ok(()) };
    let mut named = missing.iter().take(NAMED).map(u32::to_string).collect::<Vec<_>>().join(", ");
    if missing.len() > NAMED {
        named.push_str(", ...");
    }
    let (parts, count) = (if missing.len() == 1 { "part" } else { "parts" }, first.count);
    Err(format!(
        "lacks {parts} {named} of {count}: run `spdl-ctl pack SOURCE OUT --part {next}/{count}` with the source, the folder and \
         the options of the other parts"
    ))
}

/// The state of a merge.
struct Merging<'m> {
    to: &'m DatasetStore,
    /// The shards and indexes that are there.
    folder: &'m Listing,
    /// The first part, without its shards.
    first: Option<PartManifest>,
    tally: DatasetTally,
}

impl Merging<'_> {
    /// Adds the next part.
    fn add(&mut self, mut part: PartManifest, builder: &mut ManifestBuilder) -> Result<(), DatasetError> {
        let url = || self.to.url().to_owned();
        let shards = std::mem::take(&mut part.shards);
        let id = PackPart { number: part.part, count: part.parts };
        match &self.first {
            None => {
                self.tally.left_out.clone_from(&part.left_out);
                self.tally.pictures_without_annotation = part.pictures_without_annotation;
                part.notes.iter().for_each(|note| self.tally.odd.note(|| note.clone()));
                self.first = Some(part);
            }
            Some(first) => {
                if let Some(difference) = part.pack.difference(&format!("part {id}"), &first.pack, "part 0") {
                    let problem = format!("has parts that do not fit together: {difference}; run one of them again");
                    return Err(DatasetError::Parts { url: url(), problem });
                }
            }
        }
        for shard in shards {
            let index = MetadataPlace::Hidden.index_path(&shard.name);
            self.check(&shard.name, shard.bytes, shard.etag.as_deref(), id)?;
            self.check(&index, shard.index_bytes, None, id)?;
            let added = builder.shard(&shard.facts(), &shard.blocks());
            added.map_err(|source| DatasetError::Unwritable { url: shard.name.clone(), source })?;
            shard.count_in(&mut self.tally);
        }
        Ok(())
    }

    /// Checks that a part has written an object, by its size and etag.
    fn check(&self, name: &str, bytes: u64, etag: Option<&str>, part: PackPart) -> Result<(), DatasetError> {
        let found = self.folder.find_by(|other| other.cmp(name)).map(|number| self.folder.get(number));
        let problem = match found {
            None => "is missing".to_owned(),
            Some(found) if found.bytes != bytes => format!("has {} bytes, and was written with {bytes}", found.bytes),
            Some(found) if etag.is_some() && found.etag.is_some() && found.etag != etag => {
                "has another etag than when it was written".to_owned()
            }
            Some(_) => return Ok(()),
        };
        let problem = format!("{problem}: run part {part} again");
        Err(DatasetError::Parts { url: self.to.url_of(name), problem })
    }
}
