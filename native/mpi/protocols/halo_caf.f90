! The halo exchange by co-arrays: rows are assigned to a neighbour's inbox, then images synchronise or post events.
! Sides and copies count from 0, images from 1. Two copies, because a neighbour may be one exchange ahead.
module mm_halo_caf
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: event_type
  implicit none
  private
  integer(c_int64_t), allocatable, target :: inbox(:, :, :)[:]
  type(event_type), allocatable :: arrived(:)[:]
  integer :: copy = 0

  ! An event occupies 4 bytes of its window. If the window size is not a multiple of 16 bytes, MPICH 4.0.2 counts the
  ! events of one image in another's place: with two sides, two images consumed each other's events and hung.
  integer, parameter :: group = 4

contains

  ! Collective. Returns the number of this image, or less than 0 if memory is insufficient.
  integer(c_int) function mm_caf_open(words, sides) bind(c)
    integer(c_size_t), value :: words
    integer(c_int), value :: sides
    integer :: status
    copy = 0
    allocate (inbox(words, 0:sides - 1, 0:1)[*], stat=status)
    mm_caf_open = -1
    if (status /= 0) return
    inbox = 0
    allocate (arrived(0:(sides + group - 1) / group * group - 1)[*])
    sync all
    mm_caf_open = this_image()
  end function

  integer(c_int) function mm_caf_images() bind(c)
    mm_caf_images = num_images()
  end function

  subroutine mm_caf_close() bind(c)
    sync all
    deallocate (arrived)
    deallocate (inbox)
  end subroutine

  ! The row received last from that side.
  type(c_ptr) function mm_caf_in(side) bind(c)
    integer(c_int), value :: side
    mm_caf_in = c_loc(inbox(1, side, copy))
  end function

  subroutine mm_caf_next() bind(c)
    copy = 1 - copy
  end subroutine

  ! One dimension: puts rows to both neighbours, then waits for both.
  subroutine mm_caf_exchange(words, low, to_low, to_high, image_low, image_high, by_events) bind(c)
    integer(c_size_t), value :: words
    integer(c_int), value :: low, image_low, image_high, by_events
    integer(c_int64_t), intent(in) :: to_low(words), to_high(words)
    inbox(:, low + 1, copy)[image_low] = to_low
    inbox(:, low, copy)[image_high] = to_high
    if (by_events /= 0) then
      event post (arrived(low + 1)[image_low])
      event post (arrived(low)[image_high])
      event wait (arrived(low))
      event wait (arrived(low + 1))
    else if (image_low /= image_high) then
      sync images ([image_low, image_high])
    else if (image_low /= this_image()) then
      sync images (image_low)
    else
      sync memory
    end if
  end subroutine

end module
