# Finds calls of which two arguments each add operations to a graph, of what code.awk prints. C leaves open which of two
# arguments is computed first (gcc begins with the last, clang with the first), and the operations of a graph, and so its
# text and its plan, would be in another order with every compiler. What adds an operation is what returns a cvn_value *.
#
#     cvn_add(g, cvn_negate(g, x), cvn_abs(g, y))      is found; cvn_add(g, cvn_negate(g, x), y) is not
#
# Initialisers in braces are seen as calls are: their order is open, too. Reads its input twice: names, then calls.
{
    line = $0
    sub(/^[^:]*:[0-9]+:/, "", line)
    where = substr($0, 1, length($0) - length(line) - 1)
}
FNR == NR {
    if (line ~ /^(static |inline )*cvn_value \*[a-z_0-9]+\(/) {
        sub(/\(.*/, "", line)
        sub(/.*\*/, "", line)
        adds[line] = 1
    }
    next
}
{
    file = where
    sub(/:.*/, "", file)
    if (file != last) {
        depth = 0
        last = file
        name = ""
    }
    directive = continued || line ~ /^[ \t]*#/
    continued = directive && line ~ /\\$/
    if (directive)
        next
    while (match(line, /[A-Za-z_][A-Za-z_0-9]*|[(){}\[\],;]/)) {
        between = substr(line, 1, RSTART - 1)
        token = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (between ~ /[^ \t]/)
            name = ""
        if (token ~ /^[A-Za-z_]/) {
            name = token
            continue
        }
        if (token ~ /[({\[]/) {
            # one call or list: does it add an operation itself, does its present argument, how many did, is it a block
            depth++
            self[depth] = token == "(" && name in adds
            here[depth] = many[depth] = block[depth] = 0
            begun[depth] = where
        } else if (token ~ /[,;]/) {
            many[depth] += here[depth]
            here[depth] = 0
            if (token == ";") {
                many[depth] = 0
                block[depth] = 1
            }
        } else if (depth > 0) {
            many[depth] += here[depth]
            if (many[depth] > 1 && !block[depth])
                print begun[depth] ": two arguments add operations to a graph; name one before"
            if (depth > 1 && token != "}" && (self[depth] || many[depth] || here[depth]))
                here[depth - 1] = 1
            if (depth > 1 && token == "}" && !block[depth] && many[depth])
                here[depth - 1] = 1
            depth--
        }
        name = ""
    }
}
