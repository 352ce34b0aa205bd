/* Tables of fl_entropy_walk.h. Source of the rules: ITU-T T.81, annex C (codes from lengths). */
#include "fl_entropy_walk.h"

/* Bits that follow a code: the size category in the low half of its symbol. Run: the zeros in the high half and the coefficient. */
void fl_symbol_meaning(uint8_t symbol, bool ac, int *value_bits, int *run) {
    int size = symbol & 15, zeros = symbol >> 4;
    *value_bits = ac ? size : symbol;
    *run = !ac ? 1 : size ? zeros + 1 : zeros == 15 ? 16 : FL_RUN_EOB;
}

static fl_step pack_step(int bits, int run) { return (fl_step)(bits | run << 8); }

/* The steps of all windows: single symbols by enumerating codes, then chained with those of what follows. */
static void build_steps(fl_codes *codes, bool ac) {
    for (uint32_t window = 0; window < FL_WINDOWS; window++) codes->first[window] = pack_step(0, FL_RUN_NONE);
    for (int length = 1; length <= FL_WINDOW; length++) {
        for (int i = 0; i < codes->lengths[length - 1]; i++) {
            int32_t code = codes->last[length] - i;
            int value_bits, run;
            fl_symbol_meaning(codes->symbols[code + codes->offset[length]], ac, &value_bits, &run);
            uint32_t start = (uint32_t)code << (FL_WINDOW - length);
            for (uint32_t w = 0; w < 1u << (FL_WINDOW - length); w++) codes->first[start + w] = pack_step(length + value_bits, run);
        }
    }
    for (uint32_t window = 0; window < FL_WINDOWS; window++) {
        int bits = codes->first[window] & 255, run = codes->first[window] >> 8;
        while (ac && run < FL_RUN_EOB && bits < FL_WINDOW) {
            fl_step next = codes->first[(window << bits) & (FL_WINDOWS - 1)];
            int next_bits = next & 255, next_run = next >> 8;
            if (next_run == FL_RUN_NONE || next_bits > FL_WINDOW - bits) break;
            if (next_run != FL_RUN_EOB && run + next_run >= FL_RUN_EOB) break; /* sums of runs stay below what marks the end */
            bits += next_bits;
            run += next_run;
        }
        codes->all[window] = pack_step(bits, run);
    }
}

/* T.81 C.2: codes of each length in order. False for lengths that are no prefix code, or that use the code of all ones. */
bool fl_codes_build(fl_codes *codes, bool ac) {
    int32_t code = 0, used = 0;
    for (int length = 1; length <= 16; length++) {
        int count = codes->lengths[length - 1];
        codes->offset[length] = used - code;
        codes->last[length] = count ? code + count - 1 : -1;
        code += count;
        used += count;
        if (code >= 1 << length && count) return false;
        code <<= 1;
    }
    for (int i = 0; i < codes->symbol_count; i++) {
        if (!ac && codes->symbols[i] > 15) return false;
        if (ac && (codes->symbols[i] & 15) == 0 && codes->symbols[i] != 0 && codes->symbols[i] != 0xF0) return false;
    }
    build_steps(codes, ac);
    codes->built = true;
    return true;
}
