//! Text in columns, as kubectl prints it.

/// Lines of columns that are as wide as their widest cell.
pub(crate) fn columns<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.fold(header[column].chars().count(), usize::max)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    let lines: Vec<String> = std::iter::once(line(header)).chain(rows).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_blanks_at_the_end() {
        let rows = [["cart", "True"], ["a-longer-name", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(
            columns(["NAME", "READY"], &rows),
            "NAME           READY\ncart           True\na-longer-name"
        );
    }
}
