//! Where formulas, braces and paragraphs of LaTeX begin and end.

/// Whether the line that comes is blank, which parts paragraphs.
pub fn begins_blank(text: &str) -> bool {
    text.trim_start_matches([' ', '\t']).starts_with('\n')
}

/// What stands behind blanks, which may have a line end among them.
pub fn behind_blanks(text: &str) -> &str {
    let line = text.trim_start_matches([' ', '\t']);
    line.strip_prefix('\n').map_or(line, |next| next.trim_start_matches([' ', '\t']))
}

/// What stands behind blanks, a line end and comments: an argument may stand there.
pub fn behind_comments(text: &str) -> &str {
    let mut behind = behind_blanks(text);
    while let Some(comment) = behind.strip_prefix('%') {
        behind = comment.split_once('\n').map_or("", |(_, next)| next.trim_start_matches([' ', '\t']));
    }
    behind
}

/// How long the words are that say on which of Beamer's slides something stands, `<2->`; 0 where there
/// are none.
pub fn slides_length(text: &str) -> usize {
    const LONGEST: usize = 40;
    let Some(inside) = text.strip_prefix('<').map(str::as_bytes) else { return 0 };
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-+,.:|@() ".contains(byte);
    let length = inside.iter().take(LONGEST).take_while(is_part).count();
    let has_number = inside[..length].iter().any(|&byte| byte.is_ascii_digit() || byte == b'+');
    if has_number && inside.get(length) == Some(&b'>') { length + 2 } else { 0 }
}

/// How long a formula is that ends with `mark`; where its paragraph ends before, how far that is.
pub fn formula_length(text: &str, mark: &str) -> Result<usize, usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'$' if text[at..].starts_with(mark) => return Ok(at),
            b'\n' if begins_blank(&text[at + 1..]) => return Err(at),
            _ => {}
        }
    }
    Err(text.len())
}

/// Where each brace that is opened is closed, in order.
pub fn braces(text: &str) -> Vec<(u32, u32)> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'{' => {
                open.push(pairs.len());
                pairs.push((at as u32, u32::MAX));
            }
            b'}' => {
                if let Some(pair) = open.pop() {
                    pairs[pair].1 = at as u32;
                }
            }
            _ => {}
        }
    }
    pairs
}
