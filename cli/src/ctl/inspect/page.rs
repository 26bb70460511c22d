//! Sequences as a page.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use super::sequence::ShownSequence;
use crate::ctl::{
    CtlError,
    html::{self, escaped},
    shown::for_page,
};

const STYLE: &str = include_str!("style.css");
/// What the colours mean.
const KEY: &str = "<p class=\"key\"><span class=\"learned\">learned</span> <span class=\"masked\">masked: seen, and not learned</span> \
                   <span class=\"masked added\">special token</span></p>";

/// A page that is being written.
pub(super) struct SequencePage {
    out: BufWriter<File>,
    path: PathBuf,
}

impl SequencePage {
    /// Begins a page of a job's sequences.
    pub(super) fn create(path: &Path, job: &str) -> Result<Self, CtlError> {
        let failed = |source| CtlError::WriteFile { path: path.to_owned(), source };
        let mut page = Self { out: BufWriter::new(File::create(path).map_err(failed)?), path: path.to_owned() };
        page.write(&html::begin(&format!("Sequences of job {job}"), STYLE))?;
        page.write(KEY)?;
        Ok(page)
    }

    /// Adds a sequence.
    pub(super) fn add(&mut self, sequence: &ShownSequence) -> Result<(), CtlError> {
        self.write(&format!("<section><h2>{}</h2>", escaped(&sequence.facts())))?;
        for document in &sequence.documents {
            let (key, facts) = (escaped(&document.name.key), escaped(&document.facts()));
            let text = for_page(&document.parts);
            self.write(&format!(
                "<article><h3><code>{key}</code> <small>{facts}</small></h3><pre>{text}</pre></article>"
            ))?;
        }
        self.write("</section>")
    }

    /// Ends the page, and returns its path.
    pub(super) fn finish(mut self) -> Result<PathBuf, CtlError> {
        self.write(html::END)?;
        match self.out.flush() {
            Ok(()) => Ok(self.path),
            Err(source) => Err(CtlError::WriteFile { path: self.path, source }),
        }
    }

    fn write(&mut self, text: &str) -> Result<(), CtlError> {
        let written = self.out.write_all(text.as_bytes());
        written.map_err(|source| CtlError::WriteFile { path: self.path.clone(), source })
    }
}
