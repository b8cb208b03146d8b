/* Runs a fuzz target where there is no libFuzzer: `target SEED COUNT` feeds it made-up inputs, each changed a little
 * from one before, so that long ones grow. No guidance by coverage; it is the sanitizers that find. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets);

enum { KEPT = 64, LONGEST = 2048 };

static uint64_t state;

/* SplitMix64. */
static uint64_t random_word(void)
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Octets that mean something to a parser come often. */
static uint8_t an_octet(void)
{
    static const uint8_t SOME[] = {0, 1, 3, 4, 7, 8, 16, 0x20, 0x40, 0x80, 0xFF};
    uint64_t word = random_word();
    return word & 1 ? SOME[(word >> 8) % sizeof SOME] : (uint8_t)(word >> 8);
}

static size_t changed(uint8_t *input, size_t octets)
{
    size_t grown = octets + (size_t)(random_word() % 32);
    for (; octets < grown && octets < LONGEST; octets++)
        input[octets] = an_octet();
    for (uint64_t n = random_word() % 8; n > 0 && octets > 0; n--)
        input[random_word() % octets] = an_octet();
    return random_word() % 8 == 0 ? (size_t)(random_word() % (octets + 1)) : octets;
}

int main(int n, char **arguments)
{
    static uint8_t inputs[KEPT][LONGEST];
    static size_t lengths[KEPT];
    if (n != 3)
        return 2;
    state = strtoull(arguments[1], NULL, 10);
    for (uint64_t left = strtoull(arguments[2], NULL, 10); left > 0; left--) {
        unsigned one = (unsigned)(random_word() % KEPT), other = (unsigned)(random_word() % KEPT);
        memcpy(inputs[one], inputs[other], LONGEST);
        lengths[one] = changed(inputs[one], lengths[other]);
        (void)LLVMFuzzerTestOneInput(inputs[one], lengths[one]);
    }
    printf("done\n");
    return 0;
}
