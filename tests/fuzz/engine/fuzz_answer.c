/* Reading an answer, and what a reflector makes of the TLVs of the same octets: nothing read or written out of bounds,
 * whatever they are; the octets lie at the end of their memory. First octet: the mode, and how much is cut off. */
#include <stdlib.h>
#include <string.h>

#include "packet.h"
#include "tlv.h"
#include "tlv_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets);

static void right_macs(const pe_codec *codec, uint8_t *data, uint32_t length)
{
    pe_walk walk;
    pe_walk_tlvs(data, codec->layout.base_octets, length, &walk);
    uint32_t at = pe_first_tlv(&walk, PE_TLV_HMAC);
    pe_mac_of_base(codec, data, data + codec->layout.mac);
    if (at != 0)
        pe_mac_of_tlvs(codec, data, at, data + at + PE_TLV_HEADER_OCTETS);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets)
{
    if (octets < 2 || octets > 65508)
        return 0;
    pe_codec codec;
    pe_answer answer;
    uint64_t refused[PE_REASONS] = {0};
    const pe_answering answering = {.classes = UINT64_C(0xFFFF0000FFFF), .sync = 5};
    const pe_probe_facts facts = {.seq = 7, .tos = input[0], .t2_kind = input[0], .follows_up = true, .fu_seq = 3};
    pe_codec_begin(&codec, input[0] & 1 ? input : NULL, 16 < octets ? 16 : octets, input[0] & 2 ? PE_PTP : 0);
    uint32_t length = (uint32_t)octets - 1;
    uint8_t *data = malloc(length);
    if (data == NULL)
        return 0;
    memcpy(data, input + 1, length);
    pe_datagram datagram = {.data = data, .length_octets = length + (input[0] == 0xFF), .room_octets = length};
    if (pe_read_answer(&codec, &datagram, &answer) == PE_GOOD) {
        if (codec.authenticated && input[0] & 4) /* a fuzzer does not find an HMAC */
            right_macs(&codec, data, length);
        if (pe_proven(&codec, &datagram) && !pe_read_tlvs(&codec, &datagram, &answer) && answer.follows_up)
            abort();
        (void)pe_is_answer(&codec, data);
        (void)pe_class_sent(&codec, data, length, input[0]);
        (void)pe_answer_tlvs(&codec, &answering, &facts, data, length, refused);
        /* what a reflector sends back is never in doubt: its own HMAC is right, and no flag says otherwise */
        if (codec.authenticated && refused[PE_TLV_INTEGRITY] == 0 && refused[PE_TLV_MALFORMED] == 0 &&
            !pe_read_tlvs(&codec, &datagram, &answer))
            abort();
    }
    free(data);
    return 0;
}
