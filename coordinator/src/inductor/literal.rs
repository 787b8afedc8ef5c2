//! String literals of Python that decode to exactly a given text.

/// How the compiler quotes sources: `r'''` for C++, `'''` for Triton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoting {
    Plain,
    Raw(&'static str),
    Escaped,
}

/// A triple-quoted literal for `source`, in the style of `original` (a literal, prefix and quotes included) where that can
/// hold it. Every text has a literal: one that no raw string can hold is escaped.
pub fn quote(source: &str, original: &str) -> String {
    let styles =
        [if original.starts_with(['r', 'R']) { Quoting::Raw("'''") } else { Quoting::Plain }, Quoting::Raw("'''"), Quoting::Raw("\"\"\"")];
    let fitting = styles.into_iter().find(|style| fits(source, *style));
    match fitting.unwrap_or(Quoting::Escaped) {
        Quoting::Plain => format!("'''{source}'''"),
        Quoting::Raw(quotes) => format!("r{quotes}{source}{quotes}"),
        Quoting::Escaped => format!("'''{}'''", escape(source)),
    }
}

fn fits(source: &str, style: Quoting) -> bool {
    // Python reads a carriage return in a source file as a newline, and refuses a NUL.
    let quotes = match style {
        Quoting::Plain if source.contains('\\') => return false,
        Quoting::Plain => "'''",
        Quoting::Raw(quotes) => quotes,
        Quoting::Escaped => return true,
    };
    let ends_badly = source.ends_with('\\') || source.ends_with(&quotes[..1]);
    !source.contains(['\r', '\0']) && !source.contains(quotes) && !ends_badly
}

fn escape(source: &str) -> String {
    let mut escaped = String::with_capacity(source.len() + 16);
    for character in source.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\'' => escaped.push_str("\\'"),
            '\r' => escaped.push_str("\\r"),
            '\0' => escaped.push_str("\\x00"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ruff_python_ast::Expr;

    use super::*;

    fn decode(literal: &str) -> String {
        match ruff_python_parser::parse_expression(literal).unwrap().expr() {
            Expr::StringLiteral(text) => text.value.to_str().to_owned(),
            other => panic!("{literal} is {other:?}"),
        }
    }

    #[test]
    fn the_original_style_is_kept_where_it_fits() {
        assert_eq!(quote("\nint x;\n", "r'''a'''"), "r'''\nint x;\n'''");
        assert_eq!(quote("\\n", "r'''a'''"), "r'''\\n'''");
        assert_eq!(quote("x = 1\n", "'''a'''"), "'''x = 1\n'''");
        assert_eq!(quote("\\n", "'''a'''"), "r'''\\n'''");
        assert_eq!(quote("a'''b", "r'''a'''"), "r\"\"\"a'''b\"\"\"");
        assert_eq!(quote("a'", "'''a'''"), "r\"\"\"a'\"\"\"");
    }

    proptest! {
        #[test]
        fn every_source_comes_back(source in "[a\\\\'\"\r\n\0 é]{0,12}", raw in any::<bool>()) {
            let literal = quote(&source, if raw { "r'''x'''" } else { "'''x'''" });
            prop_assert_eq!(decode(&literal), source);
        }
    }
}
