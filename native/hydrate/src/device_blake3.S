// The machine code of device/blake3.cu, as device/build made it.
    .section .rodata
    .balign 64
    .globl coldsnap_blake3_image
    .hidden coldsnap_blake3_image
    .type coldsnap_blake3_image, %object
coldsnap_blake3_image:
    .incbin "blake3.fatbin"
    .size coldsnap_blake3_image, . - coldsnap_blake3_image
    .section .note.GNU-stack,"",%progbits
