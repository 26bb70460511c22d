//! Writes pieces of documents into sequences, and the columns that follow the tokens.

use std::ops::Range;

use smallvec::SmallVec;
use spdl_job::{Column, ColumnKind, Job, LabelRule, Sequence};
use spdl_sequence::{Piece, TokenRange, can_be_ids, copy_places, count_places, fill_places};
use spdl_shard::format::{Array, FieldValue};
use spdl_types::DType;

use super::{
    BadSampleCause, BadSampleProblem,
    cause::reason,
    column::{MAX_DOCUMENT_BYTES, whole_numbers},
    loss_mask::LossMask,
    record::{FieldLookup, ReadElements},
};

/// What torch's `cross_entropy` leaves out.
const NO_LABEL: i64 = -100;

/// How the columns of a job with sequences are made.
#[derive(Clone, Debug)]
pub(crate) struct SequenceWriter {
    sequence: Sequence,
    /// Fields that can have a document's tokens; of each record, the first that it has.
    from: Vec<String>,
    /// Name of the column with the tokens, and its number among the job's.
    name: String,
    tokens: usize,
    range: TokenRange,
    /// The field that says which tokens of a document are learned, if there is one.
    loss_from: Option<String>,
    labels: Vec<LabelsOf>,
    /// All other columns, with their numbers.
    others: Vec<(usize, Follower)>,
}

/// A column of what is learned at each place.
#[derive(Clone, Copy, Debug)]
struct LabelsOf {
    /// Its number among the job's columns.
    column: usize,
    dtype: DType,
    kind: LabelKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelKind {
    /// The id after the place.
    Shifted,
    /// The id at the place.
    Unshifted,
    /// Whether there is an id after the place.
    Mask,
}

/// A column that says where documents are.
#[derive(Clone, Copy, Debug)]
enum Follower {
    Positions(DType),
    DocumentLengths,
    DocumentIds,
    /// It has more than the row's own documents, and is written with the whole batch.
    GlobalLengths,
}

/// The places of a piece in the columns that are written from its document.
pub(crate) struct PieceTarget<'b> {
    tokens: &'b mut [u8],
    /// In the order of the writer's columns of labels.
    labels: SmallVec<[&'b mut [u8]; 1]>,
}

/// A row of a batch, after its pieces were written.
pub(crate) struct WrittenRow<'p> {
    pub(crate) pieces: &'p [Piece],
    /// For each piece whether its document could be read.
    pub(crate) is_good: &'p dyn Fn(usize) -> bool,
    /// For each piece whether it could be read, and its first token is learned.
    pub(crate) begins_learned: &'p dyn Fn(usize) -> bool,
    /// By chunk, the token that follows the last place, if its document could be read and it is learned.
    pub(crate) next: Option<&'p [u8]>,
}

/// Reads the tokens of a document.
///
/// # Errors
/// What is wrong with the value, to follow the name of its field.
fn tokens_of(value: FieldValue) -> Result<Array, String> {
    whole_numbers(value, MAX_DOCUMENT_BYTES, can_be_ids, |_| Ok(()))
}

fn undecodable(field: &str, problem: String) -> BadSampleProblem {
    BadSampleProblem::Undecodable { field: field.to_owned(), reason: reason(problem) }
}

/// Returns the number of tokens of a document.
///
/// # Errors
/// What is wrong with the value, to follow the name of its field.
pub fn count_tokens(value: &FieldValue) -> Result<u64, String> {
    tokens_of(value.clone()).map(|array| array.shape[0])
}

/// Reads the ids of a document, which are below `vocab`.
///
/// # Errors
/// What is wrong with the value, to follow the name of its field.
pub fn read_tokens(value: FieldValue, vocab: u32) -> Result<Vec<u32>, String> {
    let Array { dtype, elements, .. } = tokens_of(value)?;
    let mut ids = vec![0; elements.len() / dtype.bytes() * size_of::<i32>()];
    let range = TokenRange::new(DType::I32, Some(vocab));
    range.copy(dtype, &elements, &mut ids).map_err(|wrong| wrong.to_string())?;
    Ok(ids.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect())
}

impl SequenceWriter {
    /// Returns how the columns of a job are made; `None` if the job has no sequences.
    pub(super) fn new(job: &Job) -> Option<Self> {
        let sequence = *job.sequence.as_deref()?;
        let numbered = || job.columns.iter().enumerate();
        let vocab = |column: &Column| match &column.kind {
            ColumnKind::Tokens(tokens) => Some(tokens.vocab),
            _ => None,
        };
        let (tokens, column, vocab) = numbered()
            .find_map(|(number, column)| Some((number, column, vocab(column)?)))
            .expect("a checked job has one");
        let labels = numbered().filter_map(|(number, column)| {
            let kind = match (LabelRule::of(&column.kind)?.shifted, &column.kind) {
                (_, ColumnKind::LossMask(_)) => LabelKind::Mask,
                (true, _) => LabelKind::Shifted,
                (false, _) => LabelKind::Unshifted,
            };
            Some(LabelsOf { column: number, dtype: column.dtype, kind })
        });
        let others = numbered().filter_map(|(number, column)| {
            let follower = match &column.kind {
                ColumnKind::Positions(_) => Follower::Positions(column.dtype),
                ColumnKind::DocumentLengths(_) => Follower::DocumentLengths,
                ColumnKind::DocumentIds(_) => Follower::DocumentIds,
                ColumnKind::GlobalLengths(_) => Follower::GlobalLengths,
                _ => return None,
            };
            Some((number, follower))
        });
        Some(Self {
            sequence,
            from: column.from.clone(),
            name: column.name.clone(),
            tokens,
            range: TokenRange::new(column.dtype, vocab),
            loss_from: LabelRule::counted(&job.columns).and_then(|labels| labels.loss_from).map(str::to_owned),
            labels: labels.collect(),
            others: others.collect(),
        })
    }

    /// Returns the fields that are read of a document.
    pub(super) fn fields(&self) -> impl Iterator<Item = &String> {
        self.from.iter().chain(&self.loss_from)
    }

    /// Returns the name of the column with the tokens.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the label of a sequence's last place can be a token of another document than its own.
    pub(crate) fn looks_beyond(&self) -> bool {
        self.sequence.cross_documents && self.labels.iter().any(|labels| labels.kind != LabelKind::Unshifted)
    }

    /// Returns the columns that have the lengths of all documents of the global batch.
    pub(crate) fn global_lengths(&self) -> impl Iterator<Item = usize> {
        self.others.iter().filter(|(_, kind)| matches!(kind, Follower::GlobalLengths)).map(|(number, _)| *number)
    }

    /// Returns whether a field can have a document's tokens.
    pub(crate) fn is_of_tokens(&self, field: &str) -> bool {
        self.from.iter().any(|name| name == field)
    }

    /// Returns which of its document's tokens a piece needs: its own, and the one after it, which is its last label.
    pub(crate) fn needed(&self, piece: &Piece) -> Range<u64> {
        let end = piece.first + u64::from(piece.tokens) + 1;
        piece.first.saturating_sub(self.tokens_before())..end - self.tokens_before()
    }

    /// Returns the number of tokens that are put before a document.
    fn tokens_before(&self) -> u64 {
        u64::from(self.sequence.bos.is_some())
    }

    /// Returns the bytes of a token in the batch.
    pub(crate) const fn token_bytes(&self) -> usize {
        self.range.dtype().bytes()
    }

    /// Returns the columns that are written from documents: their numbers among the job's, the tokens first.
    pub(crate) fn written_columns(&self) -> impl Iterator<Item = usize> {
        [self.tokens].into_iter().chain(self.labels.iter().map(|labels| labels.column))
    }

    /// Divides a row of the columns that are [written](Self::written_columns) into the places of its pieces, and fills the places between
    /// and behind these.
    pub(crate) fn places<'b>(&self, row: impl Iterator<Item = &'b mut [u8]>, pieces: &[Piece]) -> Vec<PieceTarget<'b>> {
        let mut row = row;
        let tokens = row.next().expect("a row of tokens");
        let width = self.token_bytes();
        let split = |mut rest: &'b mut [u8], width: usize, fill: &dyn Fn(&mut [u8])| {
            let (mut at, mut parts) = (0, Vec::with_capacity(pieces.len()));
            for piece in pieces {
                let (before, behind) = rest.split_at_mut((piece.at - at) as usize * width);
                let (part, behind) = behind.split_at_mut(piece.tokens as usize * width);
                fill(before);
                parts.push(part);
                (rest, at) = (behind, piece.at + piece.tokens);
            }
            fill(rest);
            parts
        };
        let tokens = split(tokens, width, &|gap| self.pad(gap));
        let mut targets: Vec<_> =
            tokens.into_iter().map(|tokens| PieceTarget { tokens, labels: SmallVec::new() }).collect();
        for (labels, row) in self.labels.iter().zip(row) {
            let places = split(row, labels.dtype.bytes(), &|gap| labels.fill(gap));
            targets.iter_mut().zip(places).for_each(|(target, place)| target.labels.push(place));
        }
        targets
    }

    /// Returns the place of a token that belongs to no row.
    pub(crate) fn place_beyond<'b>(&self, token: &'b mut [u8]) -> PieceTarget<'b> {
        PieceTarget { tokens: token, labels: SmallVec::new() }
    }

    fn pad(&self, places: &mut [u8]) {
        fill_places(self.token_bytes(), i64::from(self.sequence.pad), places);
    }

    /// Fills the places of a piece whose document cannot be read.
    fn mask(&self, target: &mut PieceTarget<'_>) {
        self.pad(target.tokens);
        self.labels.iter().zip(&mut target.labels).for_each(|(labels, places)| labels.fill(places));
    }

    /// Writes a piece of a document, which has these fields, and returns whether its first token is learned. If that fails, the piece is
    /// padding without labels.
    ///
    /// # Errors
    /// [`BadSampleCause`] if the document is not what was packed, or has an id that is not in the vocabulary.
    pub(crate) fn write(
        &self,
        piece: &Piece,
        fields: &dyn FieldLookup,
        target: &mut PieceTarget<'_>,
    ) -> Result<bool, BadSampleCause> {
        self.written(piece, fields, target).map_err(|problem| {
            self.mask(target);
            BadSampleCause { column: self.name.clone(), problem }
        })
    }

    fn written(
        &self,
        piece: &Piece,
        fields: &dyn FieldLookup,
        target: &mut PieceTarget<'_>,
    ) -> Result<bool, BadSampleProblem> {
        let needed = self.needed(piece);
        let found = self.from.iter().find_map(|name| Some((name, fields.elements(name, needed.clone())?)));
        let field = found.as_ref().map_or(&self.from[0], |(name, _)| name);
        let wrong = |problem: String| undecodable(field, problem);
        let (_, ReadElements { value, first, all }) =
            found.ok_or_else(|| wrong("it is missing, and was there when documents were packed".to_owned()))?;
        let Array { dtype, shape, elements } = tokens_of(value).map_err(wrong)?;
        let [own, before] = [all.unwrap_or(shape[0]), self.tokens_before()];
        let (all, end) = (own + u64::from(self.sequence.added_tokens()), piece.first + u64::from(piece.tokens));
        if end > all || (end == all) != piece.ends_document {
            return Err(wrong(format!("it has {own} tokens, and had others when documents were packed")));
        }
        let mask = self.mask_of(own, fields)?;
        // The tokens that are written: those of the piece, and the one after it, which is its last label.
        let width = self.token_bytes();
        let copy = |tokens: Range<u64>, out: &mut [u8]| {
            let (mut at, mut out) = (tokens.start, out);
            if let (0, Some(bos)) = (at, self.sequence.bos) {
                out = put(out, width, bos);
                at += 1;
            }
            let own_end = tokens.end.min(before + own).max(at);
            let range = [at - before, own_end - before].map(|token| (token - first) as usize * dtype.bytes());
            let (copied, behind) = out.split_at_mut((own_end - at) as usize * width);
            let copied = self.range.copy(dtype, &elements[range[0]..range[1]], copied);
            copied.map_err(|wrong| BadSampleProblem::Token { field: field.to_owned(), problem: wrong.to_string() })?;
            if let (true, Some(eos)) = (tokens.end > own_end, self.sequence.eos) {
                put(behind, width, eos);
            }
            Ok::<_, BadSampleProblem>(())
        };
        copy(piece.first..end, target.tokens)?;
        let mut after = [0; 8];
        let after = &mut after[..width];
        // The token after the piece is written by another piece, which may be bad.
        let is_followed = !piece.ends_document && copy(end..end + 1, after).is_ok();
        let is_learned = |token: u64| mask.as_ref().is_none_or(|mask| mask.is_learned(token));
        for (labels, places) in self.labels.iter().zip(&mut target.labels) {
            let (size, is_shifted) = (labels.dtype.bytes(), labels.kind != LabelKind::Unshifted);
            let learned = self.sequence.label_tokens(piece, all, is_shifted);
            let learned = learned.start..learned.end.min(end + u64::from(is_followed)).max(learned.start);
            let place_of = |token: u64| (token - piece.first - u64::from(is_shifted)) as usize * size;
            let (rest, behind) = places.split_at_mut(place_of(learned.end));
            let (before, places) = rest.split_at_mut(place_of(learned.start));
            labels.fill(before);
            labels.fill(behind);
            let [start, within] =
                [learned.start, learned.end.min(end)].map(|token| (token - piece.first) as usize * width);
            let (most, last) = places.split_at_mut(within.saturating_sub(start) / width * size);
            labels.copy(&target.tokens[start..within.max(start)], width, most);
            if !last.is_empty() {
                labels.copy(after, width, last);
            }
            if mask.is_some() {
                let places = places.chunks_exact_mut(size).zip(learned);
                places.filter(|(_, token)| !is_learned(*token)).for_each(|(place, _)| labels.fill(place));
            }
        }
        Ok(is_learned(piece.first))
    }

    /// Reads which of a document's `tokens` tokens are learned; `None` if all are.
    fn mask_of(&self, tokens: u64, fields: &dyn FieldLookup) -> Result<Option<LossMask>, BadSampleProblem> {
        let Some(name) = &self.loss_from else { return Ok(None) };
        let wrong = |problem: String| undecodable(name, problem);
        let value = fields.value(name).ok_or_else(|| wrong("it is missing, and `loss_from` names it".to_owned()))?;
        LossMask::read(value, tokens, &self.sequence).map(Some).map_err(wrong)
    }

    /// Completes a row: writes the columns that say where documents are, and the labels that are tokens of the next document.
    /// `columns` has the row of each column of the job, empty for lengths of documents, which are returned with the numbers of their
    /// columns.
    pub(crate) fn complete(&self, row: &WrittenRow<'_>, columns: &mut [&mut [u8]]) -> Vec<(usize, Vec<i32>)> {
        if row.pieces.is_empty() {
            // Nothing was written if the batch has no other row.
            self.pad(columns[self.tokens]);
            self.labels.iter().for_each(|labels| labels.fill(columns[labels.column]));
        }
        let segments = self.sequence.segments(row.pieces);
        if self.sequence.cross_documents {
            self.label_ends(row, columns);
        }
        let mut lengths = Vec::new();
        for (number, follower) in &self.others {
            match follower {
                Follower::GlobalLengths => {}
                Follower::DocumentLengths => {
                    lengths.push((*number, segments.iter().map(|length| *length as i32).collect()));
                }
                Follower::Positions(dtype) => {
                    let width = dtype.bytes();
                    let rest =
                        each_document(&segments, width, columns[*number], |_, places| count_places(width, places));
                    count_places(width, rest);
                }
                Follower::DocumentIds => {
                    let width = DType::I32.bytes();
                    let id = |number: usize, places: &mut [u8]| fill_places(width, number as i64, places);
                    let rest = each_document(&segments, width, columns[*number], id);
                    fill_places(width, -1, rest);
                }
            }
        }
        lengths
    }

    /// Writes the shifted labels of the last tokens of documents: the first token of the next one.
    fn label_ends(&self, row: &WrittenRow<'_>, columns: &mut [&mut [u8]]) {
        let width = self.token_bytes();
        let tokens = std::mem::take(&mut columns[self.tokens]);
        for labels in self.labels.iter().filter(|labels| labels.kind != LabelKind::Unshifted) {
            let (places, size) = (&mut *columns[labels.column], labels.dtype.bytes());
            for (number, piece) in row.pieces.iter().enumerate().filter(|(_, piece)| piece.ends_document) {
                let last = (piece.at + piece.tokens - 1) as usize;
                let next = match row.pieces.get(number + 1) {
                    Some(next) => {
                        (row.begins_learned)(number + 1).then(|| &tokens[next.at as usize * width..][..width])
                    }
                    None => row.next,
                };
                if let Some(next) = next.filter(|_| (row.is_good)(number)) {
                    labels.copy(next, width, &mut places[last * size..][..size]);
                }
            }
        }
        columns[self.tokens] = tokens;
    }
}

impl LabelsOf {
    /// Fills places at which nothing is learned.
    fn fill(self, places: &mut [u8]) {
        match self.kind {
            LabelKind::Mask => places.fill(0),
            LabelKind::Shifted | LabelKind::Unshifted => fill_places(self.dtype.bytes(), NO_LABEL, places),
        }
    }

    /// Fills as many places as there are tokens, of `width` bytes each, with what is learned there.
    fn copy(self, tokens: &[u8], width: usize, places: &mut [u8]) {
        match (self.kind, self.dtype) {
            (LabelKind::Mask, DType::F32) => places.as_chunks_mut::<4>().0.fill(1_f32.to_le_bytes()),
            (LabelKind::Mask, _) => places.fill(1),
            (LabelKind::Shifted | LabelKind::Unshifted, dtype) => copy_places(width, tokens, dtype.bytes(), places),
        }
    }
}

/// Writes an id into the first place, and returns the places behind it.
fn put(places: &mut [u8], width: usize, id: u32) -> &mut [u8] {
    let (place, behind) = places.split_at_mut(width);
    place.copy_from_slice(&i64::from(id).to_le_bytes()[..width]);
    behind
}

/// Passes the number and the places, of `width` bytes each, of each document of a row to `write`. Returns the places behind them.
fn each_document<'r>(
    lengths: &[u32],
    width: usize,
    row: &'r mut [u8],
    write: impl Fn(usize, &mut [u8]),
) -> &'r mut [u8] {
    let mut rest = row;
    for (number, length) in lengths.iter().enumerate() {
        let (places, behind) = rest.split_at_mut(*length as usize * width);
        write(number, places);
        rest = behind;
    }
    rest
}
