# Puts calls of the model (model.h) into what gcc made of a kernel, in AT&T syntax: before each instruction that reads or
# writes memory one that gets its address, in place of each tile instruction one that stands for it, and before
# each jump and label one that counts the instructions since the last. The calls keep all registers and flags.
#
#     vmovups 64(%rdi,%rax), %zmm0     ->     movq %rax, model_kept; leaq 64(%rdi,%rax), %rax; movq %rax, model_at
#                                             movq model_kept, %rax; movl $count, model_count
#                                             movl $64, model_bytes; call model_read; and the instruction itself

function counted()
{
    printf "\tmovl $%d, model_count(%%rip)\n\tmovl $%d, model_vectors(%%rip)\n", instructions, vectors
    printf "\tmovq $.Lname%d, model_where(%%rip)\n", names
    instructions = vectors = 0
}

function flush()
{
    if (instructions) {
        counted()
        print "\tcall model_step"
    }
}

function address(memory)
{
    print "\tmovq %rax, model_kept(%rip)\n\tleaq " memory ", %rax"
    print "\tmovq %rax, model_at(%rip)\n\tmovq model_kept(%rip), %rax"
}

function bytes(op, rest)
{
    if (rest ~ /\{1to/ || op ~ /(ss|broadcastss|broadcastd)$/)
        return 4
    if (op ~ /^vpmov[sz]x(bw|wd|dq)$/)
        return rest ~ /%zmm/ ? 32 : rest ~ /%ymm/ ? 16 : 8
    if (op ~ /^vpmov[sz]x(bd|wq)$/)
        return rest ~ /%zmm/ ? 16 : 8
    if (rest ~ /%zmm/)
        return op ~ /^v(pmov[a-z]*|extract[a-z0-9]*|insert[a-z0-9]*)$/ && op !~ /^vpmovm2/ ? 32 : 64
    return rest ~ /%ymm/ ? 32 : rest ~ /%xmm/ ? 16 : 8
}

# tileloadd (%base,%stride,1), %tmmN and the like
function tile(op, rest, memory, part)
{
    if (op ~ /^tdp/) {
        match(rest, /%tmm[0-7]$/)
        printf "\tmovl $%d, model_tile(%%rip)\n", substr(rest, RSTART + 4, 1)
        counted()
        print "\tcall model_product"
    } else if (op ~ /^tile(load|store)/) {
        match(rest, /[-0-9]*\([^)]*\)/)
        memory = substr(rest, RSTART, RLENGTH)
        split(memory, part, /[(),]/)
        address(part[1] "(" part[2] ")")
        print "\tmovq " part[3] ", model_stride(%rip)"
        counted()
        print "\tcall model_" (op ~ /^tileload/ ? "load_tile" : "store_tile")
    }
}

/^[ \t]*\.type[ \t].*@function/ {
    name = $2
    sub(/,.*/, "", name)
    sub(/\..*/, "", name)
    names++
    print "\t.pushsection .rodata\n.Lname" names ":\t.string \"" name "\"\n\t.popsection"
}

/^[.A-Za-z_][^ \t]*:/ { flush() }

/^\t[a-z]/ {
    op = $1
    rest = $0
    sub(/^\t[a-z0-9]+[ \t]*/, "", rest)
    if (op ~ /^(rep|lock|notrack)$/) {
        print
        next
    }
    instructions++
    if (rest ~ /%zmm/)
        vectors++
    if (op ~ /^(tile|tdp|ldtile|sttile)/) {
        tile(op, rest)
        next
    }
    if (op == "call" && rest ~ /^mem(cpy|move|set)(@PLT)?$/) {
        flush()
        sub(/mem/, "model_mem", rest)
        print "\tcall " rest
        next
    }
    if (op ~ /^(j|call|ret)/) {
        flush()
    } else if (op !~ /^(lea|nop|push|pop)/ && match(rest, /[-+A-Za-z0-9_.]*\([^)]*\)/)) {
        memory = substr(rest, RSTART, RLENGTH)
        after = substr(rest, RSTART + RLENGTH)
        kind = after ~ /,/ || op ~ /^v?(cmp|test|ucomi|comi)/ || rest !~ /,/ ? "read" : "write"
        kind = op ~ /^prefetch/ ? (op == "prefetcht0" ? "fetch_near" : "fetch") : kind
        if (memory !~ /%fs|@/ && (memory !~ /%rsp/ || rest ~ /%[zy]mm/)) {
            address(memory)
            printf "\tmovl $%d, model_bytes(%%rip)\n", bytes(op, rest)
            counted()
            print "\tcall model_" kind
        }
    }
}

{ print }
