//! Joins pages into one text: removes repeated headers and footers, and joins hyphenated words.

use super::Changes;
use std::collections::HashMap;

/// Lines at the top and at the bottom of a page that may be a header or footer.
const EDGE_LINES: usize = 3;

/// A line must occur on this many pages to count as repeated.
const MIN_PAGES: usize = 3;

/// Repetitions are sought this many pages back and forth, not further: headers change by chapter.
const NEIGHBOURS: usize = 10;

/// Joins pages into one text. Removes a line at a page's edge (so also page numbers) if, apart from
/// its numbers, it is at that edge of at least three pages among this one and the twenty around it.
pub fn join_pages(pages: &[String], changes: &mut Changes) -> String {
    let pages: Vec<Vec<&str>> = pages.iter().map(|page| page.lines().collect()).collect();
    let repeated = Repeated::of(&pages);
    let mut lines: Vec<&str> = Vec::new();
    for (number, page) in pages.iter().enumerate() {
        for (place, &line) in page.iter().enumerate() {
            if repeated.has(number, edges(place, page.len()), line) {
                changes.page_lines += 1;
            } else {
                lines.push(line);
            }
        }
    }
    join_lines(&lines, changes)
}

/// An edge of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Edge {
    Top,
    Bottom,
}

/// The edges to which the line at index `place` of a page with `lines` lines belongs.
fn edges(place: usize, lines: usize) -> impl Iterator<Item = Edge> {
    let top = (place < EDGE_LINES).then_some(Edge::Top);
    let bottom = (place + EDGE_LINES >= lines).then_some(Edge::Bottom);
    top.into_iter().chain(bottom)
}

/// The lines at page edges, to find those that repeat.
struct Repeated {
    /// The numbers of the pages that have this [`normalized`] line at this edge.
    pages: HashMap<(Edge, String), Vec<usize>>,
}

impl Repeated {
    fn of(pages: &[Vec<&str>]) -> Self {
        let mut found: HashMap<(Edge, String), Vec<usize>> = HashMap::new();
        for (number, page) in pages.iter().enumerate() {
            for (place, line) in page.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                for edge in edges(place, page.len()) {
                    let on = found.entry((edge, normalized(line))).or_default();
                    if on.last() != Some(&number) {
                        on.push(number);
                    }
                }
            }
        }
        Self { pages: found }
    }

    /// Whether a line of page `number` repeats at one of its edges on the pages around.
    fn has(&self, number: usize, mut edges: impl Iterator<Item = Edge>, line: &str) -> bool {
        let form = normalized(line);
        edges.any(|edge| {
            let on = self.pages.get(&(edge, form.clone())).map_or(&[][..], Vec::as_slice);
            let before = |end: usize| on.partition_point(|&page| page < end);
            before(number + NEIGHBOURS + 1) - before(number.saturating_sub(NEIGHBOURS)) >= MIN_PAGES
        })
    }
}

/// A line without its white space, with each number replaced by `0`.
fn normalized(line: &str) -> String {
    let mut form = String::new();
    for character in line.trim().chars() {
        match character {
            character if character.is_numeric() => {
                if !form.ends_with('0') {
                    form.push('0');
                }
            }
            character if character.is_whitespace() => {}
            character => form.push(character),
        }
    }
    form
}

/// Joins lines into a text. A hyphenated word at the end of a line is joined with the next line if
/// that begins with a lowercase letter.
fn join_lines(lines: &[&str], changes: &mut Changes) -> String {
    let mut text = String::new();
    for line in lines {
        let goes_on = line.starts_with(char::is_lowercase);
        match text.strip_suffix("-\n").or_else(|| text.strip_suffix("\u{ad}\n")).map(str::len) {
            Some(end) if goes_on && text[..end].ends_with(char::is_alphabetic) => {
                text.truncate(end);
                changes.hyphens += 1;
            }
            _ => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_numbers_and_hyphens_of_pages_go_and_are_counted() {
        let page = |n: u32, text: &str| format!("A BOOK OF MINE\n{text}\nPage {n}\n");
        let pages: Vec<String> = ["One line is long enough to be hyphen-", "ated on the next page.", "Well-", "Known."]
            .into_iter()
            .zip(1..)
            .map(|(text, n)| page(n, text))
            .collect();
        let mut changes = Changes::default();
        let expected = "One line is long enough to be hyphenated on the next page.\nWell-\nKnown.\n";
        assert_eq!(join_pages(&pages, &mut changes), expected);
        assert_eq!((changes.page_lines, changes.hyphens), (8, 1));
    }

    #[test]
    fn what_does_not_repeat_stays() {
        let pages = ["1\nOne\n".to_owned(), "2\nTwo\n".to_owned()];
        let mut changes = Changes::default();
        assert_eq!(join_pages(&pages, &mut changes), "1\nOne\n2\nTwo\n");
        assert_eq!(changes, Changes::default());
    }
}
