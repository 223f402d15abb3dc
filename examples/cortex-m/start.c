/* What a Cortex-M does before main: the floating-point unit is switched on and memory made ready.
 * What is printed goes to the debugger or emulator (semihosting). */
#include <stdint.h>
#include <stdlib.h>

extern uint32_t stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];

int main(void);
void initialise_monitor_handles(void); /* of the C library: opens stdout */

/* The C library asks for these; there is nothing to do in them. */
void _init(void) {}
void _fini(void) {}

#define COPROCESSOR_ACCESS (*(volatile uint32_t *)0xE000ED88)

static void reset(void)
{
    COPROCESSOR_ACCESS |= 0xFu << 20;
    __asm volatile("dsb\n\tisb");
    for (uint32_t *to = data_start, *from = data_load; to < data_end;)
        *to++ = *from++;
    for (uint32_t *word = bss_start; word < bss_end;)
        *word++ = 0;
    initialise_monitor_handles();
    exit(main());
}

static void fault(void)
{
    abort();
}

/* The first words of flash: where the stack begins, the program, and what answers its faults. */
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors = {stack_top, {reset, fault, fault, fault, fault, fault}};
