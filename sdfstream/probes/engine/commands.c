#include "commands.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define KIND_SHIFT 24
#define WORDS_MASK 0xFFFFFFu

void pe_commands_carve(pe_commands *commands, pe_arena *arena, uint32_t words)
{
    commands->words = pe_carve(arena, words, sizeof *commands->words);
    commands->mask = words - 1;
}

static void write_head(pe_commands *commands, uint32_t at, pe_command_kind kind, uint32_t words)
{
    commands->words[at & commands->mask] = (uint32_t)kind << KIND_SHIFT | words;
}

int pe_commands_put(pe_commands *commands, pe_command_kind kind, const pe_piece *pieces, uint32_t n)
{
    uint32_t words = 0, room = commands->mask + 1;
    for (uint32_t i = 0; i < n; i++)
        words += pieces[i].octets / 4;
    uint32_t head = atomic_load_explicit(&commands->head, memory_order_relaxed);
    uint32_t free = room - (head - atomic_load_explicit(&commands->tail, memory_order_acquire));
    uint32_t behind = room - (head & commands->mask); /* until the end of the ring */
    uint32_t skipped = behind < words + 1 ? behind : 0;
    if (words + 1 > WORDS_MASK || free < skipped + words + 1)
        return -EAGAIN;
    if (skipped) {
        write_head(commands, head, PE_SKIP, skipped - 1);
        head += skipped;
    }
    write_head(commands, head, kind, words);
    uint32_t *to = &commands->words[(head & commands->mask) + 1];
    for (uint32_t i = 0; i < n; i++) {
        if (pieces[i].octets)
            memcpy(to, pieces[i].from, pieces[i].octets);
        to += pieces[i].octets / 4;
    }
    atomic_store_explicit(&commands->head, head + words + 1, memory_order_release);
    return 0;
}

const uint32_t *pe_commands_next(pe_commands *commands, pe_command_kind *kind, uint32_t *words)
{
    uint32_t tail = atomic_load_explicit(&commands->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&commands->head, memory_order_acquire))
        return NULL;
    const uint32_t *command = &commands->words[tail & commands->mask];
    *kind = (pe_command_kind)(command[0] >> KIND_SHIFT);
    *words = command[0] & WORDS_MASK;
    return command + 1;
}

void pe_commands_taken(pe_commands *commands, uint32_t words)
{
    uint32_t tail = atomic_load_explicit(&commands->tail, memory_order_relaxed);
    atomic_store_explicit(&commands->tail, tail + words + 1, memory_order_release);
}
