//! Tokens alone: all of them are read to find the end tokens, which end documents.

use spdl_types::DType;

use crate::format::token_index::{TokenRun, TokenRuns};

/// The types that tokens of such files can have.
const RAW_DTYPES: [DType; 8] =
    [DType::U8, DType::U16, DType::U32, DType::U64, DType::I8, DType::I16, DType::I32, DType::I64];

/// The magic of a `.npy` file that has a header.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// The token that ends documents, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndToken {
    dtype: DType,
    token: i64,
}

/// Reads tokens as they arrive.
#[derive(Debug)]
pub struct EndTokenReader {
    end: EndToken,
    /// Number of bytes read.
    place: u64,
    /// Where the document begins, in bytes.
    document: u64,
    /// The first bytes of a token whose others have not arrived.
    cut: Vec<u8>,
    runs: TokenRuns,
}

/// Returns the type of tokens that is called `name`.
///
/// # Errors
/// If there is none; the text lists all.
pub fn raw_dtype(name: &str) -> Result<DType, String> {
    let found = RAW_DTYPES.into_iter().find(|dtype| dtype.name() == name);
    found.ok_or_else(|| format!("known are: {}", RAW_DTYPES.map(DType::name).join(", ")))
}

impl EndToken {
    /// Creates the end token of files whose tokens have this type.
    ///
    /// # Errors
    /// If no token of this type has this number.
    pub fn new(dtype: DType, token: i64) -> Result<Self, String> {
        let (min, max) = match dtype {
            DType::U8 => (0, u8::MAX.into()),
            DType::U16 => (0, u16::MAX.into()),
            DType::U32 => (0, u32::MAX.into()),
            DType::U64 => (0, i64::MAX),
            DType::I8 => (i8::MIN.into(), i8::MAX.into()),
            DType::I16 => (i16::MIN.into(), i16::MAX.into()),
            DType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DType::I64 => (i64::MIN, i64::MAX),
            other => return Err(format!("tokens have no elements of type {}", other.name())),
        };
        if (min..=max).contains(&token) {
            return Ok(Self { dtype, token });
        }
        Err(format!("{token} is no token of type {}", dtype.name()))
    }

    /// Returns the type of the tokens.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }
}

impl EndTokenReader {
    /// Creates a reader of a file whose documents end with `end`.
    #[must_use]
    pub fn new(end: EndToken) -> Self {
        Self { end, place: 0, document: 0, cut: Vec::new(), runs: TokenRuns::new(end.dtype, false) }
    }

    /// Reads the next bytes of the file, and adds shards that are full to `full`.
    ///
    /// # Errors
    /// If there is no end token in 4 GiB, or the file has a header. The text follows the file's name.
    pub fn read(&mut self, mut bytes: &[u8], full: &mut Vec<TokenRun>) -> Result<(), String> {
        let width = self.end.dtype.bytes();
        if self.place == 0 && self.cut.is_empty() && bytes.starts_with(NPY_MAGIC) {
            return Err(
                "has the header of a `.npy` file, and tokens alone are read: write it with `ndarray.tofile`".into()
            );
        }
        if !self.cut.is_empty() {
            let (first, rest) = bytes.split_at(bytes.len().min(width - self.cut.len()));
            self.cut.extend_from_slice(first);
            bytes = rest;
            if self.cut.len() < width {
                return Ok(());
            }
            let token = std::mem::take(&mut self.cut);
            self.tokens(&token, full)?;
        }
        let (whole, cut) = bytes.split_at(bytes.len() / width * width);
        self.tokens(whole, full)?;
        self.cut.extend_from_slice(cut);
        Ok(())
    }

    /// Reads whole tokens.
    fn tokens(&mut self, bytes: &[u8], full: &mut Vec<TokenRun>) -> Result<(), String> {
        let token = self.end.token.to_le_bytes();
        match self.end.dtype.bytes() {
            1 => self.tokens_of([token[0]], bytes, full),
            2 => self.tokens_of([token[0], token[1]], bytes, full),
            4 => self.tokens_of([token[0], token[1], token[2], token[3]], bytes, full),
            _ => self.tokens_of(token, bytes, full),
        }
    }

    fn tokens_of<const N: usize>(
        &mut self,
        end: [u8; N],
        bytes: &[u8],
        full: &mut Vec<TokenRun>,
    ) -> Result<(), String> {
        let (tokens, _) = bytes.as_chunks::<N>();
        let first = self.place;
        let mut left = tokens;
        while let Some(at) = left.iter().position(|token| *token == end) {
            left = &left[at + 1..];
            self.place = first + ((tokens.len() - left.len()) * N) as u64;
            self.end_document(full)?;
        }
        self.place = first + bytes.len() as u64;
        if self.place - self.document > u32::MAX.into() {
            let EndToken { dtype, token } = self.end;
            return Err(format!(
                "has 4 GiB without the end token {token} as {}, from byte {} on: it has another one, or another type",
                dtype.name(),
                self.document
            ));
        }
        Ok(())
    }

    fn end_document(&mut self, full: &mut Vec<TokenRun>) -> Result<(), String> {
        self.runs.add(self.document, self.place - self.document, &mut Vec::new(), full)?;
        self.document = self.place;
        Ok(())
    }

    /// Ends the file. Returns whether its last token is no end token, so that the rest is a document too; adds the last shards.
    ///
    /// # Errors
    /// If it ends within a token, or has tokens and none is the end token.
    pub fn finish(mut self, full: &mut Vec<TokenRun>) -> Result<bool, String> {
        if !self.cut.is_empty() {
            let (bytes, dtype) = (self.place + self.cut.len() as u64, self.end.dtype);
            let width = dtype.bytes();
            return Err(format!(
                "has {bytes} bytes, and tokens of type {} have {width}: it is cut off, or has another type",
                dtype.name()
            ));
        }
        if self.document == 0 && self.place > 0 {
            let EndToken { dtype, token } = self.end;
            return Err(format!(
                "has no end token {token} in its {} tokens of type {}: give `--end-token` the id that ends its documents, or `--dtype` \
                 the type that it was written with",
                self.place / dtype.bytes() as u64,
                dtype.name()
            ));
        }
        let has_rest = self.place > self.document;
        if has_rest {
            self.end_document(full)?;
        }
        full.extend(self.runs.finish());
        Ok(has_rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: DType, token: i64, file: &[u8], chunk: usize) -> Result<(Vec<u32>, bool), String> {
        let mut reader = EndTokenReader::new(EndToken::new(dtype, token)?);
        let mut full = Vec::new();
        for bytes in file.chunks(chunk) {
            reader.read(bytes, &mut full)?;
        }
        let has_rest = reader.finish(&mut full)?;
        let ends = full.iter().flat_map(|run| run.facts(dtype, file.len() as u64, "").ends.to_vec()).collect();
        Ok((ends, has_rest))
    }

    #[test]
    fn an_end_token_ends_a_document_whatever_chunks_the_file_comes_in() {
        let tokens = [5_u16, 9, 9, 0x0900, 0x0009, 7];
        let file: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        for chunk in 1..=file.len() {
            assert_eq!(read(DType::U16, 9, &file, chunk), Ok((vec![2, 3, 5, 6], true)), "{chunk}");
        }
        let negative: Vec<u8> = [1_i32, -1, 2, -1].iter().flat_map(|token| token.to_le_bytes()).collect();
        assert_eq!(read(DType::I32, -1, &negative, 3), Ok((vec![2, 4], false)));
        assert_eq!(read(DType::U8, 3, b"", 1), Ok((vec![], false)));
        assert_eq!(read(DType::U64, 1, &1_u64.to_le_bytes(), 5), Ok((vec![1], false)));
    }

    #[test]
    fn a_file_whose_tokens_never_are_the_end_token_is_refused_and_not_one_document() {
        let file: Vec<u8> = [1_u16, 2, 0x0900].iter().flat_map(|token| token.to_le_bytes()).collect();
        for chunk in 1..=file.len() {
            let problem = read(DType::U16, 9, &file, chunk).unwrap_err();
            assert_eq!(
                problem,
                "has no end token 9 in its 3 tokens of type u16: give `--end-token` the id that ends its documents, or `--dtype` the \
                 type that it was written with"
            );
        }
        assert_eq!(read(DType::U16, 2, &file, 3), Ok((vec![2, 3], true)));
    }

    #[test]
    fn a_file_with_a_header_or_a_part_of_a_token_is_refused() {
        let problem = |file: &[u8]| read(DType::U32, 9, file, 100).unwrap_err();
        assert!(problem(b"\x93NUMPY\x01\x00").starts_with("has the header of a `.npy` file"));
        assert_eq!(problem(&[0; 7]), "has 7 bytes, and tokens of type u32 have 4: it is cut off, or has another type");
        assert_eq!(EndToken::new(DType::U16, 65_536), Err("65536 is no token of type u16".into()));
        assert_eq!(EndToken::new(DType::F32, 1), Err("tokens have no elements of type f32".into()));
    }
}
