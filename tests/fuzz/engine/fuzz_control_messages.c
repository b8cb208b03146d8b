/* Control messages of a received datagram, at the end of their memory: none is read beyond it, and what makes no sense
 * says nothing. */
#include <stdlib.h>
#include <string.h>

#include "control_messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t octets)
{
    uint8_t *control = malloc(octets ? octets : 1);
    pe_control read;
    if (control == NULL || octets > PE_CONTROL_OCTETS) {
        free(control);
        return 0;
    }
    memcpy(control, input, octets);
    if (!pe_control_read(control, octets, &read) &&
        (read.interface || read.error_at || read.tos || read.ttl || read.at_ns != PE_ABSENT_NS))
        abort();
    if (read.error_at && read.error_at + 16 > octets)
        abort();
    if (read.kind == PE_KIND_USER && read.at_ns != PE_ABSENT_NS)
        abort();
    free(control);
    return 0;
}
