! One word put to another image, as a scalar co-array and as an element of one: a library may bring only the second.
module mm_caf_scalar
  use, intrinsic :: iso_c_binding
  implicit none
  private
  integer(c_int64_t), allocatable :: lone[:]
  integer(c_int64_t), allocatable :: row(:)[:]

contains

  ! Collective. Returns 0, or another number where the memory is not to be had.
  integer(c_int) function mm_caf_scalar_open() bind(c)
    integer :: status
    allocate (lone[*], row(4)[*], stat=status)
    mm_caf_scalar_open = int(status, c_int)
    if (status /= 0) return
    lone = 0
    row = 0
    sync all
  end function

  subroutine mm_caf_scalar_close() bind(c)
    sync all
    deallocate (lone, row)
  end subroutine

  ! Collective. To an image, which has it when the images have been synchronised.
  subroutine mm_caf_scalar_put(word, image, as_element) bind(c)
    integer(c_int64_t), value :: word
    integer(c_int), value :: image, as_element
    sync all
    if (as_element /= 0) then
      row(2)[image] = word
    else
      lone[image] = word
    end if
    sync all
  end subroutine

  integer(c_int64_t) function mm_caf_scalar_got(as_element) bind(c)
    integer(c_int), value :: as_element
    if (as_element /= 0) then
      mm_caf_scalar_got = row(2)
    else
      mm_caf_scalar_got = lone
    end if
  end function

end module
