#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn found(kind: Kind, text: &str) -> Vec<&str> {
    find(text).into_iter().filter(|finding| finding.kind == kind).map(|finding| &text[finding.range]).collect()
}

/// Checks each text's expected findings of a kind.
fn check(kind: Kind, cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        assert_eq!(found(kind, text), *expected, "{text}");
    }
}

#[test]
fn e_mail_addresses() {
    check(
        Kind::EmailAddress,
        &[
            ("Write to anna.k+news@mail.example.org.", &["anna.k+news@mail.example.org"]),
            (
                "<tom@example.co.uk>, Mary@Example.COM; mailto:x@y.de",
                &["tom@example.co.uk", "Mary@Example.COM", "x@y.de"],
            ),
            ("é: a@b.fr\nc@d.fr", &["a@b.fr", "c@d.fr"]),
            ("-bob@x.com, ...tom@x.com", &["bob@x.com", "tom@x.com"]),
            ("mailto:%20bob@x.com", &["20bob@x.com"]),
            ("@anna, me@home, 3 @ 2.50, a@b.c, user@1.2.3, icon@2x.png", &[]),
            ("git@github.com:ember/ember clones", &[]),
            (&("a".repeat(70) + "@example.org"), &[]),
        ],
    );
}

#[test]
fn telephone_numbers() {
    let numbers = [
        "+49 30 901820",
        "+49 (0)30 90 18 20",
        "+1 (212) 555-0123",
        "+442079460958",
        "+33 1 23 45 67 89",
        "0049 30 901820",
        "(212) 555-0123",
        "212-555-0123",
        "1-212-555-0123",
        "030 / 901 82 01",
        "020 7946 0958",
        "01 23 45 67 89",
        "07700 900123",
        "0171-1234567",
        "(030) 9018201",
    ];
    for number in numbers {
        let text = format!("Ring {number}, please.");
        assert_eq!(found(Kind::TelephoneNumber, &text), [number]);
    }
    check(
        Kind::TelephoneNumber,
        &[
            ("Tel.: 901820, Fax 90 18 21", &["901820", "90 18 21"]),
            ("Tél 0123456789", &["0123456789"]),
            ("Ring +49 30 1234567 12.05.2024 at noon.", &["+49 30 1234567"]),
            ("+49 30 1234567 / 0171 1234567", &["+49 30 1234567", "0171 1234567"]),
            ("+49 30/1234567 0171/7654321", &["+49 30/1234567", "0171/7654321"]),
            ("0049 30 1234567 2024-05-01", &["0049 30 1234567"]),
            ("on 01.02.2024 12 34 56, +2345678901234567890", &[]),
            ("on 01.02.2024, 2024-01-02 03:04:05, 1999-2001", &[]),
            ("ISBN 978-3-16-148410-0, ISBN 0-395-19395-8", &[]),
            ("1 234 567 890 stars, 3.14159265358979, $212-555-0123.00, 10.0.0.138", &[]),
            ("in 1066 and 1492 he sold 200,000 of 300 000 shares", &[]),
            ("1 + 2345678901234567890 and x+4930901820", &[]),
            ("the hotel 1234567 cancelled 7654321", &[]),
            ("+1.2125550123, +49.30901820", &["+1.2125550123", "+49.30901820"]),
            ("+3.1415926535, +1.234567891, cell 0.4111111111, cell 3.1415926535897932", &[]),
            ("01 02 03 04 05 06 07 08 09 10, 09-10-11-12-13, 01 02 03 04 06", &["01 02 03 04 06"]),
            ("tel 01 02 03 04 05, phone 7.4951234567", &["01 02 03 04 05", "7.4951234567"]),
        ],
    );
}

#[test]
fn spaces_that_no_line_ends_at_part_groups_of_digits() {
    for space in ["\u{a0}", "\u{202f}"] {
        for (kind, plain) in [
            (Kind::TelephoneNumber, "01 23 45 67 89"),
            (Kind::TelephoneNumber, "+33 1 23 45 67 89"),
            (Kind::TelephoneNumber, "0033 1 23 45 67 89"),
            (Kind::TelephoneNumber, "(212) 555 0123"),
            (Kind::CardNumber, "4111 1111 1111 1111"),
            (Kind::Iban, "FR14 2004 1010 0505 0001 3M02 606"),
        ] {
            let number = plain.replace(' ', space);
            assert_eq!(found(kind, &format!("Voir {number}, merci.")), [number.as_str()]);
        }
        let text = "Tél. 90 18 21 ou +33 1 23 45 67 89 ou 01 23 45 67 89.".replace(' ', space);
        let expected = ["90 18 21", "+33 1 23 45 67 89", "01 23 45 67 89"].map(|number| number.replace(' ', space));
        assert_eq!(found(Kind::TelephoneNumber, &text), expected);
    }
}

#[test]
fn keys() {
    // Assembled here, so that scanners do not take this file for a leak.
    let random = "q9Zx3Lk8Vb2Nw7Rt5Yp1Gh6Jd4Mf0Sc8Ae2";
    for known in [
        "AKIA".to_owned() + "IOSFODNN7EXAMPLE",
        format!("ghp_{random}3"),
        format!("sk-proj-{random}"),
        format!("sk_live_{random}"),
        format!("AIza{}", &random[..35]),
        format!("xoxb-123456789012-{random}"),
        format!("hf_{random}"),
        format!("eyJ{random}.eyJ{random}.{random}"),
        format!("-----BEGIN RSA PRIVATE KEY-----\n{random}\n{random}==\n-----END RSA PRIVATE KEY-----"),
    ] {
        let text = format!("use {known} here");
        assert_eq!(found(Kind::Key, &text), [known.as_str()]);
    }
    check(
        Kind::Key,
        &[
            ("api_key = \"f3a9c81b7d204e65\"", &["f3a9c81b7d204e65"]),
            ("Password: hT7-kk29!pQz4", &["hT7-kk29!pQz4"]),
            ("AWS_SECRET_ACCESS_KEY=wJalrXUtn/K7MDENG/bPxRfiCYK3Y", &["wJalrXUtn/K7MDENG/bPxRfiCYK3Y"]),
            ("secret_key = \"f3a9c81b7d204e65\"", &["f3a9c81b7d204e65"]),
            ("the token id: what the secret key means, and token_value = nothing_at_all", &[]),
            ("the secret: she never told anybody", &[]),
            ("password: correcthorsebatterystaple", &[]),
            ("sk-learn-is-a-library-for-machine-learning", &[]),
            ("token = 111111111111111a", &[]),
            ("a desk-3f9a8b7c6d5e4f3a2b1c0d9e", &[]),
        ],
    );
}

#[test]
fn card_numbers() {
    // The card networks' test numbers.
    for card in [
        "4111 1111 1111 1111",
        "5555-5555-5555-4444",
        "378282246310005",
        "3782 822463 10005",
        "6011111111111117",
        "30569309025904",
        "3530111333300000",
        "4222222222222",
        "2223003122003222",
    ] {
        let text = format!("Card {card}, 12/26");
        assert_eq!(found(Kind::CardNumber, &text), [card]);
    }
    check(
        Kind::CardNumber,
        &[
            ("4111 1111 1111 1111 12 26", &["4111 1111 1111 1111"]),
            ("12 4111 1111 1111 1111", &["4111 1111 1111 1111"]),
            ("4111 1111 1111 1112, 5555-5555-5555-4445", &[]),
            ("1234567890123452, 0000 0000 0000 0000", &[]),
            ("x4111111111111111, 4111111111111111111111", &[]),
            ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", &[]),
            ("0.4111111111111111, -.4111111111111111, .4111111111111111, 4111111111111111.5", &[]),
            ("3.1415926535897932, 0.4111 1111 1111 1111, 4111 1111 1111 1111.50", &[]),
            ("3.14 4111 1111 1111 1111 7.5", &["4111 1111 1111 1111"]),
            ("2.4111 1111 1111 1111", &["4111 1111 1111 1111"]),
            ("1,4111111111111111,12/26. No.4111111111111111.", &["4111111111111111", "4111111111111111"]),
        ],
    );
}

#[test]
fn bank_account_numbers() {
    check(
        Kind::Iban,
        &[
            ("IBAN DE89 3704 0044 0532 0130 00, BIC", &["DE89 3704 0044 0532 0130 00"]),
            ("GB82WEST12345698765432 AND MORE", &["GB82WEST12345698765432"]),
            ("FR14 2004 1010 0505 0001 3M02 606", &["FR14 2004 1010 0505 0001 3M02 606"]),
            ("NO9386011117947", &["NO9386011117947"]),
            ("DE88 3704 0044 0532 0130 00, XX89 3704 0044 0532 0130 00", &[]),
            ("DE89 3704 0044 0532 0130 0", &[]),
            ("DE89370400440532013000X", &[]),
        ],
    );
}

#[test]
fn what_overlaps_is_found_once() {
    let text = "DE89370400440532013000 and +49 30 901820";
    let kinds: Vec<Kind> = find(text).into_iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::Iban, Kind::TelephoneNumber]);
}

/// The masked text and the number of findings, processed in pieces of about this many bytes.
fn masked(text: &str, piece: usize) -> (String, u64) {
    let (mut masking, mut out) = (Masking::default(), String::new());
    let mut sink = |text: &str| -> Result<(), ()> {
        out += text;
        Ok(())
    };
    let mut rest = text;
    while !rest.is_empty() {
        let (first, after) = rest.split_at(rest.ceil_char_boundary(piece.min(rest.len())));
        masking.add(first, &mut sink).unwrap();
        rest = after;
    }
    masking.end_document(&mut sink).unwrap();
    let count = masking.counts.values().sum();
    (out, count)
}

#[test]
fn tags_stand_for_what_was_found_wherever_pieces_end() {
    let text = "Dear Anna, é write to tom@example.org or ring +49 30 901820.\n".repeat(3000);
    let expected = "Dear Anna, é write to [e-mail] or ring [telephone].\n".repeat(3000);
    for piece in [1, 7, 4096, 65_536, 1 << 20] {
        assert_eq!(masked(&text, piece), (expected.clone(), 6000), "{piece}");
    }
    let key = format!("-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n", "Aa0b\n".repeat(1000));
    let long = "line\n".repeat(12_500) + &key + "end";
    assert_eq!(masked(&long, 1000), ("line\n".repeat(12_500) + "[key]\nend", 1));
}

#[test]
fn nothing_is_cut_in_two_wherever_it_stands() {
    let of_words = [
        "anna.lee@example.org",
        "+49 30 901820",
        "01\u{a0}23 45\u{202f}67 89",
        "Tel. 901820",
        "4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
        "password:\nhT7-kk29!pQz4",
    ];
    let fillers = ["word ", "word\n", "word,"].map(|filler| (filler.repeat(13_200), " ", &of_words[..]));
    let without_spaces = ("word,".repeat(13_200), ",", &of_words[..1]);
    for (filler, sign, items) in fillers.into_iter().chain([without_spaces]) {
        let cut = TextChunks::default().add(&filler)[0].text.len();
        for item in items {
            let tagged = masked(item, usize::MAX).0;
            for place in cut - 40..cut + 4 {
                let (before, after) = filler.split_at(place);
                let expected = format!("{before}{sign}{tagged}{sign}{after}");
                let found = masked(&format!("{before}{sign}{item}{sign}{after}"), usize::MAX);
                assert!(found == (expected, 1), "{item:?} at {place} of {:?}", &filler[..5]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pieces_do_not_matter_and_nothing_else_changes(
        words in proptest::collection::vec("[a-zé0-9]{1,9}|a@b\\.org|\n|\\+49 30 901820|4111 1111 1111 1111", 0..300),
        repeat in 1usize..60, piece in 1usize..9000,
    ) {
        let text = words.join(" ").repeat(repeat);
        let whole = masked(&text, usize::MAX);
        prop_assert_eq!(&masked(&text, piece), &whole);
        let mut chunks = TextChunks::default();
        let mut all: Vec<TextChunk> = chunks.add(&text);
        all.extend(chunks.end_document());
        prop_assert_eq!(all.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), text.clone());
        let mut offset = 0;
        for chunk in &all {
            prop_assert!(chunk.offset == offset && chunk.text.len() <= 64 << 10);
            let before = &text[..offset as usize];
            prop_assert_eq!(chunk.begins_line, before.is_empty() || before.ends_with('\n'));
            prop_assert!(chunk.ends_line == (chunk.text.ends_with('\n') || text.len() == before.len() + chunk.text.len()));
            offset += chunk.text.len() as u64;
        }
    }

    #[test]
    fn any_text_is_looked_at(text in "\\PC{0,400}") {
        for finding in find(&text) {
            prop_assert!(text.get(finding.range).is_some());
        }
    }
}
