# Prints C sources as "file:line:code" with comments, strings and character constants blanked, so that
# a search for a word finds code only. Include lines keep their quotes.
FNR == 1 { inside = 0 }
{
    line = $0
    if (!inside && line ~ /^[ \t]*#[ \t]*include/) { print FILENAME ":" FNR ":" line; next }
    out = ""
    n = length(line)
    for (i = 1; i <= n; i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        if (inside) {
            if (two == "*/") { inside = 0; i++ }
        } else if (two == "/*") { inside = 1; i++; out = out " " }
        else if (two == "//") break
        else if (c == "\"" || c == "'") {
            for (i++; i <= n && substr(line, i, 1) != c; i++)
                if (substr(line, i, 1) == "\\") i++
            out = out c c
        } else out = out c
    }
    print FILENAME ":" FNR ":" out
}
