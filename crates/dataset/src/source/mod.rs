//! The source that a dataset is packed from: a folder of class folders, on disk or in a store, or a text file that lists
//! files. Files with one stem form one record.
//!
//! A source may have more files than fit into memory: their names are sorted on disk, and records come one by one.

mod class_folders;
mod collect;
mod fields;
mod file;
mod folder;
mod hints;
mod left_out;
mod list;
mod place;
mod stems;
mod stored;
mod twins;

use std::path::{Path, PathBuf};

use collect::Collected;
pub(super) use collect::RecordList;
pub(super) use fields::ANNOTATION_FIELD;
pub use fields::{FieldChoice, LABEL_FIELD};
pub(crate) use fields::{field_name, is_sound, is_unread_picture, is_video, note_of_pictures, pictures};
pub(super) use file::{CHANGED, missing_file};
pub(crate) use file::{at_line, read_text, text_of, wrong};
pub(super) use hints::way_out_of;
pub(crate) use left_out::LeftOutTally;
pub use left_out::{LeftOut, LeftOutReason};
pub(super) use place::FilePlace;
use place::StoredFile;
use spdl_shard::{format::Field, manifest::check_names, store::DatasetStore};
use spdl_store::{StoreError, TemporaryFolder};
use tokio::runtime::Handle;

use super::{ClassOrder, DatasetError, refuse_as_classes};

/// Memory that names and records take while they are sorted, in bytes; the others lie in a temporary file meanwhile.
const SORT_BYTES: usize = 16 << 20;

/// The source of the records of a dataset that is packed.
#[derive(Clone, Debug)]
pub enum PackSource {
    /// A folder with one folder per class, with pictures anywhere inside, and beside each picture the other files of
    /// its record: those with the same stem. Classes are numbered by the order of their names; each record gets its
    /// class's number as the field `cls`.
    ImageFolder(PathBuf),
    /// Several folders of class folders on disk, such as one of each year: what is in folders of one name is of one class. The
    /// paths of records begin at the folder that all of them lie in.
    ImageFolders {
        /// The folder that all of them lie in.
        root: PathBuf,
        /// Their paths in it, with `/` between parts.
        folders: Vec<String>,
    },
    /// A text file with the path of a file on each line, relative to the list's own folder, and, optionally, a label
    /// after a tab. Empty lines and lines that start with `#` are skipped. Files with one stem and one label form one
    /// record. If every label is an integer, labels go into the field `cls` as they are; otherwise they are names of
    /// classes, numbered by the order of their names.
    FileList(PathBuf),
    /// A folder of class folders like [`ImageFolder`](Self::ImageFolder), in a store that can list it. The list has the
    /// sizes of the files, so that only files that are packed are requested.
    StoredFolder(DatasetStore),
}

/// The place of a picture's Pascal VOC annotation: a file with the picture's name and the extension `xml`.
#[derive(Clone, Debug)]
pub enum Annotations {
    /// In the picture's own folder.
    Beside,
    /// Under this folder, at the picture's path in the source, or otherwise directly in the folder.
    Under(PathBuf),
    /// Like [`Under`](Self::Under), with the folder in a store, which is asked for each of them.
    UnderStored(DatasetStore),
}

impl Annotations {
    /// Opens the folder of annotations at a path or URL.
    ///
    /// # Errors
    /// If the URL is invalid, or no store knows its scheme.
    pub fn under(path_or_url: &Path) -> Result<Self, StoreError> {
        Ok(match StoreOrPath::open(path_or_url)? {
            StoreOrPath::Store(from) => Self::UnderStored(from),
            StoreOrPath::Path(path) => Self::Under(path),
        })
    }

    const fn is_elsewhere(&self) -> bool {
        !matches!(self, Self::Beside)
    }
}

/// What a path or URL names.
enum StoreOrPath {
    Store(DatasetStore),
    Path(PathBuf),
}

impl StoreOrPath {
    fn open(path_or_url: &Path) -> Result<Self, StoreError> {
        let Some(url) = path_or_url.to_str().filter(|text| text.contains("://")) else {
            return Ok(Self::Path(path_or_url.to_owned()));
        };
        let from = DatasetStore::open(url)?;
        let local = from.local_folder().map(Path::to_owned);
        Ok(local.map_or(Self::Store(from), Self::Path))
    }
}

/// How a source is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListOptions<'l> {
    /// How classes are numbered. If a list of classes is given, no others are allowed.
    pub(super) classes: &'l ClassOrder,
    /// Whether classes may have the names of splits.
    pub(super) all_splits: bool,
    /// The fields that are wanted; `None` for all.
    pub(super) fields: Option<&'l FieldChoice>,
    /// Where annotations are read from, if not only from the records' own files.
    pub(super) annotations: Option<&'l Annotations>,
}

/// The files of one record.
#[derive(Clone, Debug)]
pub(super) struct SourceRecord {
    /// Their paths as the source gives them, with `/` between parts, and a zero byte between paths; at least one.
    /// Pictures come first.
    files: Box<str>,
    /// Their sizes in bytes, if the source's list has them; otherwise empty.
    sizes: Box<[u64]>,
    /// Length of the stem, the common part of the paths, in bytes.
    stem_bytes: u32,
    /// Distinguishes records with the same key: 0 for the first one, then from 1.
    twin: u32,
    pub(super) label: Option<i64>,
}

/// The records of a source, in its order.
pub(super) struct SourceRecords {
    pub(super) files: SourceFiles,
    pub(super) records: RecordList,
    pub(super) classes: Vec<String>,
    pub(super) left_out: LeftOutTally,
    /// The oddities of the source.
    pub(super) notes: Vec<String>,
}

/// Where the files of records are, and which fields they become.
#[derive(Clone, Debug)]
pub(super) struct SourceFiles {
    root: SourceRoot,
    choice: Option<FieldChoice>,
    annotations: Option<AnnotationRoot>,
}

/// The folder or store that the paths of a source's files are relative to.
#[derive(Clone, Debug)]
enum SourceRoot {
    Folder(PathBuf),
    Store { from: DatasetStore, runtime: Handle },
}

/// The places that the paths of annotations are relative to.
#[derive(Clone, Debug)]
enum AnnotationRoot {
    Beside,
    Under(SourceRoot),
}

impl PackSource {
    /// Returns the source at `path`: a file is a list, all else a folder of class folders.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        if path.is_file() { Self::FileList(path.to_owned()) } else { Self::ImageFolder(path.to_owned()) }
    }

    /// Opens the source at a path or URL: see [`of`](Self::of); a URL of a store is that of a folder.
    ///
    /// # Errors
    /// If the URL is invalid, or no store knows its scheme.
    pub fn open(path_or_url: &Path) -> Result<Self, StoreError> {
        Ok(match StoreOrPath::open(path_or_url)? {
            StoreOrPath::Store(from) => Self::StoredFolder(from),
            StoreOrPath::Path(path) => Self::of(&path),
        })
    }

    /// Opens the source that consists of these: a path or URL as [`open`](Self::open) takes it, or several folders on disk.
    ///
    /// # Errors
    /// As for [`open`](Self::open); and if one of several is no folder on disk, or lies in another one.
    pub fn open_all(sources: &[PathBuf]) -> Result<Self, DatasetError> {
        if let [one] = sources {
            return Ok(Self::open(one)?);
        }
        let real = |source: &PathBuf| match source.canonicalize() {
            Ok(real) if real.is_dir() => Ok(real),
            _ => Err(wrong(source, "is no folder on disk, and several sources have to be folders")),
        };
        let folders = sources.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        for (number, folder) in folders.iter().enumerate() {
            if folders.iter().enumerate().any(|(other, outer)| other != number && folder.starts_with(outer)) {
                return Err(wrong(&sources[number], "lies in another source, so that its records would come twice"));
            }
        }
        let first = folders.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
        let is_around = |root: &&Path| folders.iter().all(|folder| folder.starts_with(root));
        let root = first.ancestors().find(is_around).unwrap_or(first).to_owned();
        let within = |folder: &PathBuf| {
            let path = folder.strip_prefix(&root).ok().and_then(Path::to_str).map(str::to_owned);
            path.ok_or_else(|| wrong(folder, "has a name that is not UTF-8"))
        };
        let folders = folders.iter().map(within).collect::<Result<_, _>>()?;
        Ok(Self::ImageFolders { root, folders })
    }

    /// Lists the records. Blocks the thread, which has to belong to a runtime if the source or its annotations are in a
    /// store. Names that do not fit into memory lie in `temporary`.
    pub(super) fn list(
        &self,
        how: &ListOptions<'_>,
        temporary: &TemporaryFolder,
    ) -> Result<SourceRecords, DatasetError> {
        let root = match self {
            Self::ImageFolder(root) | Self::ImageFolders { root, .. } => SourceRoot::Folder(root.clone()),
            Self::FileList(list) => SourceRoot::Folder(list.parent().unwrap_or(Path::new("")).to_owned()),
            Self::StoredFolder(from) => SourceRoot::of_store(from),
        };
        let annotations = how.annotations.map(AnnotationRoot::of);
        let files = SourceFiles { root, choice: how.fields.cloned(), annotations };
        let Collected { records, classes, left_out, notes } = match self {
            Self::ImageFolder(root) => folder::read(root, &[String::new()], how, temporary)?,
            Self::ImageFolders { root, folders } => folder::read(root, folders, how, temporary)?,
            Self::FileList(list) => list::read(list, how, temporary)?,
            Self::StoredFolder(from) => stored::read(from, &files, how, temporary)?,
        };
        if records.len() == 0 {
            return Err(self.nothing(&left_out));
        }
        check_names(&classes).map_err(|source| DatasetError::Unwritable { url: self.origin(), source })?;
        Ok(SourceRecords { files, records, classes, left_out, notes })
    }

    /// Returns its path or URL.
    fn origin(&self) -> String {
        match self {
            Self::ImageFolder(path) | Self::FileList(path) => path.display().to_string(),
            Self::ImageFolders { root, folders } => {
                let paths = folders.iter().map(|folder| root.join(folder).display().to_string());
                paths.collect::<Vec<_>>().join("`, `")
            }
            Self::StoredFolder(from) => from.url().to_owned(),
        }
    }

    fn nothing(&self, left_out: &LeftOutTally) -> DatasetError {
        let expected = match self {
            Self::ImageFolder(_) | Self::ImageFolders { .. } | Self::StoredFolder(_) => {
                "a folder per class with pictures in it is expected"
            }
            Self::FileList(_) => "a line per picture is expected",
        };
        let mut problem = expected.to_owned();
        if let Some(words) = left_out.in_words() {
            problem.push_str(&format!("; it contains: {words}"));
        }
        if let Some(way) = hints::way_out(left_out) {
            problem.push_str(&format!("; {way}"));
        }
        DatasetError::Nothing { origin: self.origin(), problem }
    }
}

impl ListOptions<'_> {
    /// Returns whether a folder can be a class.
    fn allows(&self, folder: &str) -> bool {
        self.classes.given().is_none_or(|classes| classes.iter().any(|class| class == folder))
    }

    /// Returns the classes in the order of their numbers, from the folders of a source that have a record.
    fn classes_of(&self, url: &str, mut folders: Vec<String>) -> Result<Vec<String>, DatasetError> {
        if let Some(classes) = self.classes.given() {
            return Ok(classes.to_vec());
        }
        if !self.all_splits {
            refuse_as_classes(url, folders.iter().map(String::as_str))?;
        }
        self.classes.sort(&mut folders)?;
        Ok(folders)
    }

    /// Returns the fields that no file of a record may have: that of the label, and that of annotations from elsewhere.
    fn taken(&self, has_labels: bool) -> Vec<&'static str> {
        let label = has_labels.then_some(LABEL_FIELD);
        let annotation = self.annotations.is_some_and(Annotations::is_elsewhere).then_some(ANNOTATION_FIELD);
        label.into_iter().chain(annotation).collect()
    }
}

impl SourceRoot {
    fn of_store(from: &DatasetStore) -> Self {
        Self::Store { from: from.clone(), runtime: Handle::current() }
    }

    fn place(&self, path: &str) -> FilePlace {
        match self {
            Self::Folder(root) => FilePlace::Disk(root.join(path)),
            Self::Store { from, runtime } => FilePlace::Stored(StoredFile::new(from.clone(), path, runtime.clone())),
        }
    }

    /// Returns the place in this root of a file with a path from another root; `None` if no file in this root can have
    /// the path.
    fn place_of_other(&self, path: &str) -> Option<FilePlace> {
        match self {
            Self::Folder(_) => (!Path::new(path).is_absolute()).then(|| self.place(path)),
            Self::Store { .. } => {
                // Lists that `find` makes have `./` before each path; a store takes `.` for a name.
                let parts: Vec<&str> = path.split('/').filter(|part| *part != ".").collect();
                let path = parts.join("/");
                (!path.starts_with('/') && object_store::path::Path::parse(&path).is_ok()).then(|| self.place(&path))
            }
        }
    }
}

impl AnnotationRoot {
    fn of(annotations: &Annotations) -> Self {
        match annotations {
            Annotations::Beside => Self::Beside,
            Annotations::Under(folder) => Self::Under(SourceRoot::Folder(folder.clone())),
            Annotations::UnderStored(from) => Self::Under(SourceRoot::of_store(from)),
        }
    }
}

impl SourceFiles {
    /// Returns the place of a file from its path in the source.
    pub(super) fn place(&self, path: &str) -> FilePlace {
        self.root.place(path)
    }

    /// Returns the fields of a record and the paths of their files, as the source gives them.
    pub(super) fn fields<'r>(&'r self, record: &'r SourceRecord) -> impl Iterator<Item = (String, &'r str)> {
        record.files().map(|path| (record.field(path, self.choice.as_ref()), path))
    }

    /// Returns the file that the field `name` of a record comes from, as the source gives it.
    pub(super) fn file_of<'r>(&'r self, record: &'r SourceRecord, name: &str) -> Option<&'r str> {
        self.fields(record).find(|(field, _)| field == name).map(|(_, path)| path)
    }

    /// Returns the places where the annotation of `record` may be, the best first, with its size if the source's list has
    /// it; `None` if annotations are not wanted.
    pub(super) fn annotation_places(&self, record: &SourceRecord) -> Option<Vec<(FilePlace, Option<u64>)>> {
        let name = format!("{}.{ANNOTATION_FIELD}", record.stem());
        Some(match self.annotations.as_ref()? {
            AnnotationRoot::Beside => {
                let listed = record.files().zip(record.sizes()).find(|(path, _)| *path == name);
                vec![(self.place(&name), listed.and_then(|(_, bytes)| bytes))]
            }
            AnnotationRoot::Under(root) => {
                let flat = name.rsplit_once('/').map(|(_, file)| file);
                let places = [Some(&*name), flat].into_iter().flatten().filter_map(|path| root.place_of_other(path));
                places.map(|place| (place, None)).collect()
            }
        })
    }
}

impl SourceRecord {
    /// Returns the paths of its files, as the source gives them.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.split('\0')
    }

    /// Returns the size of each of its files in bytes, or `None` where the source's list does not have it.
    pub(super) fn sizes(&self) -> impl Iterator<Item = Option<u64>> {
        self.sizes.iter().copied().map(Some).chain(std::iter::repeat(None))
    }

    fn stem(&self) -> &str {
        &self.files[..self.stem_bytes as usize]
    }

    /// Returns the record's key: the stem. A dot in the file's name would end the key, so it becomes `_`. Parts that lead
    /// out of the folder are removed, and a leading `__`, which WebDataset reserves, becomes `x_`.
    pub(super) fn key(&self) -> String {
        let (folder, file) = self.stem().rsplit_once('/').unwrap_or(("", self.stem()));
        let parts = folder.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        let mut key: String = parts.flat_map(|part| [part, "/"]).collect();
        key.push_str(&file.replace('.', "_"));
        if key.starts_with("__") {
            key.replace_range(..1, "x");
        }
        twins::numbered(&key, self.twin)
    }

    /// Returns the record as bytes, from which [`of_payload`](Self::of_payload) makes it again.
    fn payload(&self) -> Vec<u8> {
        let Self { files, sizes, stem_bytes, twin, label } = self;
        let has_label = [u8::from(label.is_some())];
        let label = label.unwrap_or_default().to_le_bytes();
        let count = (sizes.len() as u32).to_le_bytes();
        let head = [&has_label[..], &label, &twin.to_le_bytes(), &stem_bytes.to_le_bytes(), &count].concat();
        let sizes = sizes.iter().flat_map(|bytes| bytes.to_le_bytes());
        head.into_iter().chain(sizes).chain(files.bytes()).collect()
    }

    fn of_payload(payload: &[u8]) -> Self {
        let ([has_label, head @ ..], rest) = payload.split_first_chunk::<21>().expect("a record has a head");
        let number = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("4 bytes"));
        let label = i64::from_le_bytes(*head.first_chunk().expect("8 bytes"));
        let (sizes, files) = rest.split_at(number(16) as usize * 8);
        let sizes =
            sizes.chunks_exact(8).map(|bytes| u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))).collect();
        let files = String::from_utf8(files.to_vec()).expect("a record is made of texts").into();
        Self { files, sizes, stem_bytes: number(12), twin: number(8), label: (*has_label == 1).then_some(label) }
    }

    /// Returns the field that the file at `path` goes into: its suffix after the stem, or the name that the user chose.
    fn field(&self, path: &str, choice: Option<&FieldChoice>) -> String {
        let field = fields::field_name(&path[self.stem_bytes as usize + 1..]);
        match choice.and_then(|choice| choice.name_of(&field)) {
            Some(name) => name.to_owned(),
            None => field,
        }
    }
}

/// Returns whether a field or file with this name holds a picture, by its extension.
pub(crate) fn is_picture(name: &str) -> bool {
    fields::makes_a_record(&fields::field_name(name.rsplit('.').next().unwrap_or_default()), None)
}

/// Fields that are never pictures, whatever they contain.
const NO_PICTURES: [&str; 4] = [LABEL_FIELD, ANNOTATION_FIELD, "json", "txt"];

/// Returns whether a field's content is needed to decide whether it is a picture.
pub(crate) fn may_be_picture(field: &Field<'_>) -> bool {
    is_picture(field.name) || !NO_PICTURES.contains(&field.name)
}

fn extension(path: &str) -> Option<String> {
    stems::last_dot(path).map(|dot| path[dot + 1..].to_lowercase())
}

/// Returns the error for a folder that is none of the given classes.
fn unknown_class(path: &str, class: &str) -> DatasetError {
    wrong(Path::new(path), &format!("is the folder of class `{class}`, which is not among the given ones"))
}
