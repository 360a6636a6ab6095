//! What parts the fields of a table, and whether they are quoted, judging by its beginning.

/// The bytes that may be a delimiter.
const DELIMITERS: [u8; 3] = [b'\t', b';', b','];

/// The delimiter for a table with one field: ASCII's unit separator, which no text contains.
const SINGLE_FIELD_DELIMITER: u8 = 0x1f;

/// The delimiter that Excel's line before the first row (`sep=;`) declares, and the length of that
/// line.
pub fn declared_delimiter(start: &[u8]) -> Option<(u8, usize)> {
    let (head, rest) = start.split_at_checked(b"sep=".len()).filter(|(head, _)| head.eq_ignore_ascii_case(b"sep="))?;
    let is_delimiter = |byte: u8| byte == b'\t' || byte.is_ascii_punctuation() && byte != b'"';
    match *rest {
        [byte, b'\n', ..] if is_delimiter(byte) => Some((byte, head.len() + 2)),
        [byte, b'\r', b'\n', ..] if is_delimiter(byte) => Some((byte, head.len() + 3)),
        _ => None,
    }
}

/// The delimiter: the candidate that is most frequent in the first row, outside quotes. If the
/// first row has none, the table has one field, and commas in later rows are text, unless they
/// follow the rows' names.
pub fn delimiter(start: &[u8]) -> u8 {
    let mut quoted = false;
    let mut counts = DELIMITERS.map(|delimiter| (delimiter, 0));
    for &byte in start {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if quoted => {}
            _ => counts.iter_mut().filter(|(delimiter, _)| *delimiter == byte).for_each(|(_, count)| *count += 1),
        }
    }
    let most = counts.into_iter().max_by_key(|&(_, count)| count).filter(|&(_, count)| count > 0);
    let most = most.map(|(delimiter, _)| delimiter);
    let after_names = || DELIMITERS.into_iter().find(|&delimiter| has_quoted_names(start, delimiter));
    most.or_else(after_names).unwrap_or(SINGLE_FIELD_DELIMITER)
}

/// Whether a table is of one column, with rows that begin with their names, as R's `write.table`
/// writes it: the first row is quoted, and the next has a quotation mark on both sides of the
/// delimiter, or `NA` after it for a text that is missing. Speech in a table of one field,
/// `"No", he said.`, has neither.
fn has_quoted_names(start: &[u8], delimiter: u8) -> bool {
    let mut lines = start.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.is_empty());
    let mut next_quoted = || lines.next().filter(|line| line.starts_with(b"\""));
    let (first, second) = (next_quoted(), next_quoted());
    let is_named = |row: &[u8]| {
        row.ends_with(&[b'"', delimiter, b'N', b'A']) || row.windows(3).any(|three| three == [b'"', delimiter, b'"'])
    };
    first.is_some() && second.is_some_and(is_named)
}

/// Whether fields are quoted, judging by the beginning of a table. In tab-separated ones quotation
/// marks are often text: then text follows right after a mark that would close a field.
pub fn is_quoted(start: &[u8], delimiter: u8) -> bool {
    let mut state = FieldState::Begin;
    let mut text_after_quote = |&byte: &u8| {
        let before = state;
        state = before.after(byte, delimiter);
        before == FieldState::QuoteInQuoted && state == FieldState::Plain
    };
    delimiter != b'\t' || !start.iter().any(&mut text_after_quote)
}

/// The state within a field, as the `csv` crate sees it: a quotation mark counts at the start of a
/// field, and inside a field that began with one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FieldState {
    Begin,
    Plain,
    Quoted,
    /// After a quotation mark in a quoted field: it ends the field, or is the first of a doubled
    /// one.
    QuoteInQuoted,
}

impl FieldState {
    pub fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Self::Begin | Self::QuoteInQuoted, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::QuoteInQuoted,
            (Self::Quoted, _) => Self::Quoted,
            (_, b'\n' | b'\r') => Self::Begin,
            (_, byte) if byte == delimiter => Self::Begin,
            _ => Self::Plain,
        }
    }
}
