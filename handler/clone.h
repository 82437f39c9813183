/* The function myriad_clone_database(). */
#ifndef MYRIAD_CLONE_H
#define MYRIAD_CLONE_H

/* What the plugin's declaration points at. */
extern void *const myriad_clone_function;
/* At start: makes the folders of copies that were committed and not finished. */
void myriad_finish_clones();
#endif
