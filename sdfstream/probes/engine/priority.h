/* The priority of the engine's thread. Stamps are the kernel's whatever it is, so a low one falsifies no delay; but a
 * busy machine then makes probes late and failures known late. */
#ifndef PE_PRIORITY_H
#define PE_PRIORITY_H

#include <stdint.h>

enum { PE_PRIORITY_NORMAL, PE_PRIORITY_NICE, PE_PRIORITY_FIFO };

/* Ask for the best there is for the calling thread; what it got. `why`: the errno of what was refused, 0: nothing. */
int pe_priority_ask(int *why);

#endif
